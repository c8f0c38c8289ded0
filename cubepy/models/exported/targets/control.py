"""Branches and loops, whose bodies are graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy import tensor as T
from cubepy.models.exported.bodies import function_of
from cubepy.models.exported.program import Body
from cubepy.models.exported.records import target
from cubepy.tensor import Tensor


@target("higher_order.cond")
def cond(chooses: Any, yes: Body, no: Body, operands: Sequence[Any] = ()) -> list[Any]:
    """Only the branch that is chosen runs; numbers among operands are known to both."""
    functions = [_of_tensors(body, operands) for body in (yes, no)]
    return T.cond(chooses, *functions, *_tensors(operands))  # type: ignore[no-any-return]


@target("higher_order.while_loop")
def while_loop(
    asked: Body, body: Body, carried: Sequence[Any], others: Sequence[Any] = ()
) -> list[Any]:
    goes_on, step = function_of(asked), function_of(body)
    return list(
        T.while_loop(
            lambda *c: goes_on(*c, *others)[0], lambda *c: tuple(step(*c, *others)), tuple(carried)
        )
    )


@target("higher_order.scan")
def scan(
    body: Body, init: Sequence[Any], xs: Sequence[Tensor], others: Sequence[Any] = ()
) -> list[Any]:
    step, many = function_of(body), len(init)

    def one(carry: Any, parts: Any) -> Any:
        made = step(*carry, *parts, *others)
        return made[:many], made[many:]

    carry, ys = T.scan(one, list(init), list(xs))
    return [*carry, *ys]


@target("higher_order.map_impl")
def mapped(body: Body, xs: Sequence[Tensor], others: Sequence[Any] = ()) -> list[Any]:
    step = function_of(body)
    _, ys = T.scan(lambda carry, parts: (carry, step(*parts, *others)), None, list(xs))
    return list(ys)


def _tensors(operands: Sequence[Any]) -> list[Tensor]:
    return [o for o in operands if isinstance(o, Tensor)]


def _of_tensors(body: Body, operands: Sequence[Any]) -> Any:
    """A body as a function of the tensors among its operands."""
    function = function_of(body)

    def called(*given: Tensor) -> list[Any]:
        rest = iter(given)
        return function(*[next(rest) if isinstance(o, Tensor) else o for o in operands])

    return called
