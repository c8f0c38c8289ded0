"""How a function of generated code is made known to numba.

It does what `numba.extending.intrinsic` does (one Python function gives the signature and the code
that is emitted), but each op is lowered by one implementation registered when the module is
imported. An intrinsic registers one for every new signature, after which numba refreshes all its
registries: that costs more than typing the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.core.errors import TypingError
from numba.core.extending import lower_builtin
from numba.core.typing.templates import AbstractTemplate, Signature, infer, infer_global

Emit = Callable[..., Any]
"""`emit(builder, *values)` builds LLVM code and returns the result's LLVM value (None for void)."""
Case = tuple[Signature, Emit]
Define = Callable[..., "Case | None"]


class Op:
    """A function that only numba-compiled code can call.

    Args:
        name: what generated code calls it.
        define: from the argument types to a signature and the emitter of the code; None if an
            argument has to be a literal and is not.
        literals: whether arguments are shown as literal types first.
        pure: whether the same arguments give the same result, and nothing else happens.
    """

    def __init__(
        self, name: str, define: Define, literals: bool = False, pure: bool = False
    ) -> None:
        self.__name__ = name
        self.__doc__ = define.__doc__
        self._define, self.literals, self.pure = define, literals, pure
        self._signatures: dict[Any, Signature] = {}
        self._emits: dict[Any, Emit] = {}
        template = type(
            f"Template_{name}",
            (_OpTemplate,),
            {"key": self, "prefer_literal": literals, "metadata": {"target": "generic"}},
        )
        infer(template)
        infer_global(self, types.Function(template))
        lower_builtin(self, types.VarArg(types.Any))(self.lower)

    def signature(self, args: tuple[Any, ...]) -> Signature | None:
        """The signature of a call with arguments of these types."""
        found = self._signatures.get(args)
        if found is None:
            case = self._define(*args)
            if case is None:
                return None
            found, emit = case
            self._signatures[args] = found
            self._emits[found.args] = emit
        return found

    def for_call(self, args: tuple[Any, ...]) -> Signature | None:
        """The signature that numba would find: with plain types before literal ones, or after."""
        plain = tuple(map(types.unliteral, args))
        first, second = (args, plain) if self.literals else (plain, args)
        try:
            found = self.signature(first)
        except TypingError:
            found = None
        return found or self.signature(second)

    def lower(self, context: Any, builder: Any, sig: Signature, args: tuple[Any, ...]) -> Any:
        result = self._emits[sig.args](builder, *args)
        return context.get_dummy_value() if result is None else result

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError(f"{self.__name__} works in compiled code only")

    def __repr__(self) -> str:
        return f"<op {self.__name__}>"


class _OpTemplate(AbstractTemplate):
    key: Op

    def generic(self, args: tuple[Any, ...], kws: dict[str, Any]) -> Signature | None:
        """Numba's question for the signature of a call."""
        return None if kws else self.key.signature(args)


def op(define: Define) -> Op:
    """Make an op of a function from argument types to a signature and an emitter."""
    return Op(define.__name__, define)


def literal_op(define: Define) -> Op:
    """Like `op`, for functions with arguments that have to be literals."""
    return Op(define.__name__, define, literals=True)
