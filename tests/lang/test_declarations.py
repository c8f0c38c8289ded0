"""What may be declared as a kernel or a struct, and where errors point in lines of any letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import CompileError, KernelNameError, KernelTypeError


def plain(out: cb.Array):
    out[0] = 1


def with_property() -> Any:
    @cb.struct
    class Holder:
        a: cb.f32

        @property
        def twice(self):
            return 2 * self.a

    return Holder


def with_class_method() -> Any:
    @cb.struct
    class Holder:
        a: cb.f32

        @classmethod
        def one(cls):
            return cls(1.0)

    return Holder


def with_constructor() -> Any:
    @cb.struct
    class Holder:
        a: cb.f32

        def __init__(self, a):
            self.a = a

    return Holder


@cb.struct
class Base:
    a: cb.f32


def inherited() -> Any:
    class Derived(Base):  # type: ignore[misc]
        b: cb.f32

    return Derived


@pytest.mark.parametrize(
    ("declare", "rule", "hint"),
    [
        (lambda: cb.kernel(staticmethod(plain)), "not a staticmethod", "@staticmethod above"),
        (lambda: cb.func(classmethod(plain)), "not a classmethod", "@cb.func alone"),
        (lambda: cb.kernel(cb.kernel(plain)), "not a kernel", "alone above the def"),
        (with_property, "struct Holder has the property 'twice'", "write a method"),
        (with_class_method, "struct Holder has the classmethod 'one'", "write a method"),
        (with_constructor, "struct Holder has its own __init__", "@cb.func that makes one"),
        (inherited, "struct Base cannot be inherited from", "give the other struct a field"),
    ],
)
def test_what_is_no_kernel_or_struct_is_refused_where_it_is_declared(
    declare: Callable[[], Any], rule: str, hint: str
) -> None:
    with pytest.raises(KernelTypeError, match=rule) as told:
        declare()
    assert hint in told.value.hint


@cb.struct
class Nothing:
    """A struct without fields."""


@cb.kernel
def takes_nothing(out: cb.Array, nothing: Nothing):
    out[0] = 1


def test_a_struct_may_be_empty() -> None:
    out = np.zeros(1, np.float32)
    takes_nothing[1, 1](out, Nothing())
    assert out[0] == 1


@cb.kernel
def letters(x: cb.Array, out: cb.Array):
    größe = x[0]; s = 'äöü€😀'; out[0] = größe * missing  # noqa: E702, F821  # fmt: skip


def test_a_caret_stands_below_its_character() -> None:
    with pytest.raises(KernelNameError) as told:
        letters[1, 1](np.zeros(1, np.float32), np.zeros(1, np.float32))
    text, caret = told.value.location.excerpt().splitlines()  # type: ignore[union-attr]
    assert text[caret.index("^") :].startswith("missing")


def test_a_caret_stands_below_its_character_behind_tabs(tmp_path: Any) -> None:
    path = tmp_path / "tabs.py"
    path.write_text(
        "import cubepy as cb\n\n@cb.kernel\ndef tabs(out: cb.Array):\n"
        "\tif out[0] > 0:\n\t\tout[0] = missing\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(CompileError) as told:
        scope["tabs"][1, 1](np.zeros(1, np.float32))
    text, caret = told.value.location.excerpt().splitlines()  # type: ignore[union-attr]
    assert text[: caret.index("^")].expandtabs() == "    \t\tout[0] = ".expandtabs()
    assert caret == "    \t\t" + " " * len("out[0] = ") + "^"
