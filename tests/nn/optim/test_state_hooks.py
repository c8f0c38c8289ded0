"""Hooks around the state of an optimizer when it is saved and loaded, for every optimizer."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, FileFormatError
from tests.nn.optim.test_often import OPTIMIZERS

TIMES = ("state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")


def trained(name: str) -> nn.optim.Optimizer:
    """An optimizer after a step."""
    rng = np.random.default_rng(3)
    weight = cb.tensor(rng.normal(size=(4, 3)), requires_grad=True)
    optimizer = OPTIMIZERS[name]([weight])
    (weight**2).sum().backward()
    optimizer.step()
    return optimizer


def plain(value: Any) -> Any:
    """Elements of a tensor, wherever it is; a number as it is."""
    return value.numpy() if isinstance(value, cb.Tensor) else value


def add(optimizer: nn.optim.Optimizer, when: str, hook: Any, **how: Any) -> Any:
    return getattr(optimizer, f"register_{when}_hook")(hook, **how)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_hooks_are_called_around_saving_and_loading(name: str) -> None:
    optimizer, seen = trained(name), list[Any]()
    for when in TIMES:
        for n, how in enumerate(({}, {"prepend": True}, {})):
            add(optimizer, when, lambda *given, of=(when, n): seen.append((*of, given)), **how)
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    order = [(when, n) for when in TIMES for n in (1, 0, 2)]
    assert [one[:2] for one in seen] == order
    for when, _, given in seen:
        assert given[0] is optimizer and len(given) == (2 if when in TIMES[1:3] else 1)
    assert seen[3][2][1] is state and seen[6][2][1] is not state
    assert seen[6][2][1].keys() == state.keys()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_hooks_change_what_is_saved_and_loaded(name: str) -> None:
    optimizer, other = trained(name), trained(name)
    first = optimizer.register_state_dict_post_hook(lambda o, state: {**state, "epoch": 3})
    optimizer.register_state_dict_post_hook(lambda o, state: state.update(last=state["epoch"] + 1))
    state = optimizer.state_dict()
    assert (state["epoch"], state["last"]) == (3, 4)
    first.remove()
    with pytest.raises(KeyError):
        optimizer.state_dict()
    renamed = {"optimizer": state}
    with pytest.raises(ArgumentError, match="state of an optimizer"):
        other.load_state_dict(renamed)
    other.register_load_state_dict_pre_hook(lambda o, given: dict(given["optimizer"]))

    def faster(_: Any, given: Any) -> None:
        given["param_groups"] = [{**group, "lr": 0.25} for group in given["param_groups"]]

    last = other.register_load_state_dict_pre_hook(faster)
    known = list[Any]()
    other.register_load_state_dict_post_hook(lambda o: known.append(o.param_groups[0]["lr"]))
    other.load_state_dict(renamed)
    assert known == [0.25] == [other.param_groups[0]["lr"]]
    assert state["param_groups"][0]["lr"] != 0.25 and "optimizer" in renamed
    last()
    other.load_state_dict(renamed)
    assert known == [0.25, state["param_groups"][0]["lr"]]
    for mine, given in zip(other.state.values(), state["state"].values(), strict=True):
        for key, value in given.items():
            np.testing.assert_array_equal(plain(mine[key]), plain(value))


def test_a_state_that_is_refused_calls_no_hook_that_comes_behind() -> None:
    optimizer, seen = trained("Adam"), list[Any]()
    optimizer.register_load_state_dict_post_hook(seen.append)
    state = optimizer.state_dict()
    state["param_groups"] = state["param_groups"] * 2
    with pytest.raises(FileFormatError, match="other groups"):
        optimizer.load_state_dict(state)
    assert not seen
    for when in TIMES:
        with pytest.raises(ArgumentError, match="hook must be a function"):
            add(optimizer, when, 3)


def save(optimizer: Any, state: Any) -> None:
    state["saved"] = True


def test_copies_have_their_hooks() -> None:
    optimizer = trained("SGD with momentum")
    removal = optimizer.register_state_dict_post_hook(save)
    copied = copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))
    removal()
    assert "saved" not in optimizer.state_dict()
    assert all(one.state_dict()["saved"] for one in copied)
