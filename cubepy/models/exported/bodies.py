"""Graphs inside of a graph, as functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cubepy.errors import CubeError, ModelError
from cubepy.models.exported.complexes import is_complex, run_of_complex
from cubepy.models.exported.program import Body, Node, Ref
from cubepy.models.exported.records import run_of


def value_in(given: Any, env: dict[str, Any]) -> Any:
    """An argument with the values of names.

    Example:
        >>> value_in([Ref("x"), 2], {"x": 1})
        [1, 2]
    """
    if isinstance(given, Ref):
        return env[given.name]
    if isinstance(given, (list, tuple)):
        return [value_in(v, env) for v in given]
    return given


def computed(node: Node, run: Callable[..., Any], env: dict[str, Any]) -> Any:
    """What a node gives.

    Raises:
        ModelError: with the operator and its line.
    """
    try:
        kwargs = {k: value_in(v, env) for k, v in node.kwargs.items()}
        args = [value_in(a, env) for a in node.args]
        if node.target.startswith("aten.") and is_complex([*args, *kwargs.values()]):
            run = run_of_complex(node.target)
        return run(*args, **kwargs)
    except (CubeError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise ModelError(f"{node.target}{at(node)}: {error}") from error


def at(node: Node) -> str:
    """The line of a node, as errors say it."""
    return f" ({node.line})" if node.line else ""


def function_of(body: Body) -> Callable[..., list[Any]]:
    """A body as a function of what it is given.

    Example:
        >>> import cubepy as cb
        >>> from cubepy.models.exported import targets  # its records
        >>> twice = Body(("x",), (Node("y", "aten.add.Tensor", (Ref("x"), Ref("x"))),), (Ref("y"),))
        >>> function_of(twice)(cb.tensor(3))
        [tensor(6)]
    """

    def called(*given: Any) -> list[Any]:
        env = dict(zip(body.inputs, given, strict=True))
        for node in body.nodes:
            run = run_of(node.target)
            assert run is not None  # a model with operators that are missing is not made
            env[node.name] = computed(node, run, env)
        return [value_in(o, env) for o in body.outputs]

    return called


def with_bodies(nodes: Any) -> Iterator[Node]:
    """Nodes, and those of the graphs in their arguments."""
    for node in nodes:
        yield node
        for body in node.args:
            if isinstance(body, Body):
                yield from with_bodies(body.nodes)
