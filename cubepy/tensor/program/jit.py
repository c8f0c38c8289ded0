"""`cb.jit`: functions of tensors that are traced once for each kind of arguments."""

from __future__ import annotations

import copy
import functools
import sys
import threading
import types
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from cubepy.errors import ArgumentError, TraceWarning
from cubepy.runtime import recording
from cubepy.runtime.deep_stack import uncollected
from cubepy.runtime.device import current
from cubepy.runtime.profile import active
from cubepy.runtime.replay.host import host_replay
from cubepy.runtime.tables import room
from cubepy.tensor.explained.history import History
from cubepy.tensor.graph import execute
from cubepy.tensor.modes import mode
from cubepy.tensor.program.differentiated import gradients
from cubepy.tensor.program.form import TensorSpec, changing, contributed, leaves_of, rebuilt
from cubepy.tensor.program.guards import Guards
from cubepy.tensor.program.plans.states import freed, wait, writing
from cubepy.tensor.program.program import Program
from cubepy.tensor.program.rehearsal import rehearse
from cubepy.tensor.program.scalar import Scalar
from cubepy.tensor.program.trace import Trace, Tracer
from cubepy.tensor.program.writer import MISS, Writer
from cubepy.tensor.record import recorded_by
from cubepy.tensor.value import Handle

if TYPE_CHECKING:
    from cubepy.tensor.explained.report import Explanation

PROGRAMS = 256
"""Kinds of arguments of one function that are kept."""
VARIANTS = 4
"""Programs of one kind, for other globals and attributes."""
FIRST = 3
"""Traces in a row in which a function may change what it reads: states of optimizers are made in
the first call."""
MANY = 8, 32
"""Traces in a row, each for another object, or another value of one number, that are worth a
warning."""
TRACES = 16
"""Traces of one kind after which the function runs as it is: what it reads changes all the time."""


class Jitted:
    """A function of tensors whose ops run as programs (see `jit`).

    Attributes:
        function: what was given.
        programs: by kind of arguments.
        traces: how often each kind was traced.
        unsettled: how many of the last traces of a kind changed what they read.
        refused: why calls of a kind run the function as it is.
        history: what was traced when, and why.
        memory: bytes for what is between the steps of a program; None for no bound.
    """

    def __init__(self, function: Callable[..., Any], memory: int | None = None) -> None:
        self.function, self.memory = function, memory
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.programs: dict[Any, list[Program]] = {}
        self.traces: dict[Any, int] = {}
        self.unsettled: dict[Any, int] = {}
        self.refused: dict[Any, str] = {}
        self.fixed: dict[Any, set[int]] = {}
        self.latest: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None = None
        self.history = History()
        self.lock = threading.RLock()
        if hasattr(function, "__name__"):
            functools.update_wrapper(self, function)
        recording.tables.add(self)

    def __cubepy_jitted__(self) -> Callable[..., Any]:
        return self.function

    def __repr__(self) -> str:
        return f"<cb.jit of {self.name}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Jitted:
        made = memo[id(self)] = object.__new__(type(self))
        made.__init__(copy.deepcopy(self.function, memo), self.memory)  # type: ignore[misc]
        return made

    def __reduce__(self) -> Any:
        """Programs stay where they are: another process traces the function again."""
        module, path = getattr(self, "__module__", None), getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(module or "")
        for part in path.split("."):
            found = getattr(found, part, None)
        return path if found is self else (type(self), (self.function, self.memory))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def clear(self) -> None:
        """Forget all programs."""
        self.latest = None
        for table in (self.programs, self.traces, self.unsettled, self.refused):
            table.clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        latest = self.latest
        if latest is not None:
            result = latest(args, kwargs)
            if result is not MISS:
                return result
        return self.other(args, kwargs)

    def other(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that is not like the one before."""
        profiled = bool(active) and recording.detours == len(active)
        if recording.detours and not profiled:  # this thread traces another function, or records
            return self.function(*args, **kwargs)
        leaves: list[Any] = []
        structure = leaves_of((args, kwargs), leaves)
        if np.float64 in map(type, leaves):  # Python floats of NumPy
            plain = [float(v) if type(v) is np.float64 else v for v in leaves]
            args, kwargs = rebuilt(structure, iter(plain))
            return self(*args, **kwargs)
        if profiled:
            return self.stepwise(self.key(structure, leaves), args, kwargs)
        key = self.key(structure, leaves)
        result = self.known(key, args, kwargs)
        if result is MISS:
            wait()  # states that another thread writes look different
            with self.lock:
                result = self.known(
                    key, args, kwargs
                )  # another thread may have traced it meanwhile
                if result is MISS:
                    result = self.traced(structure, leaves)
        return result

    def stepwise(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call while somebody profiles: step by step."""
        for program in tuple(self.programs.get(key, ())):
            result = program.stepwise(args, kwargs)
            if result is not MISS:
                return result
        return self.function(*args, **kwargs)

    def known(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call of a kind that came before, or MISS."""
        if key in self.refused:
            return self.function(*args, **kwargs)
        for program in tuple(self.programs.get(key, ())):
            result = program.call(args, kwargs)
            if result is not MISS:
                self.latest = program.call
                return result
        return MISS

    def key(self, structure: Any, leaves: list[Any]) -> Any:
        """The kind of a call."""
        fixed = self.fixed.get(structure, set())
        parts = [contributed(leaf, n in fixed) for n, leaf in enumerate(leaves)]
        return (structure, mode.enabled, str(current()), *parts)

    def traced(
        self, structure: Any, leaves: list[Any], recorder: Callable[..., Tracer] = Tracer
    ) -> Any:
        """Keep what a function does as a program, and run that; gives its result."""
        arguments = {n: leaf for n, leaf in enumerate(leaves) if isinstance(leaf, Handle)}
        if mode.enabled and any(t.value.call is not None for t in arguments.values()):
            args, kwargs = rebuilt(structure, iter(leaves))
            return self.function(*args, **kwargs)  # gradients go on through what was before
        others = [leaf for leaf in leaves if not isinstance(leaf, (Handle, float))]
        guards = Guards(self.function, others)
        tracer = recorder(arguments, self.name)
        fixed: set[int] = set(self.fixed.get(structure, ()))
        given: list[Any] = []
        for n, leaf in enumerate(leaves):
            if n in tracer.own:
                leaf = tracer.own[n]
            elif type(leaf) is float and n not in fixed:
                leaf = Scalar(leaf, f"a{n}", frozenset([n]), fixed)
            given.append(leaf)
        args, kwargs = rebuilt(structure, iter(given))
        with uncollected():
            with self.history.trace(self.key(structure, leaves), self.programs):
                try:
                    with recorded_by(tracer):
                        result = self.function(*args, **kwargs)
                    trace, result = tracer.trace(result)
                    program = self.program_of(trace, structure, leaves, fixed, guards)
                    if tracer.runs:
                        compute(tracer, trace, program)
                except BaseException:
                    tracer.undo()
                    raise
            if program is not None:
                variants = self.programs.setdefault(self.key(structure, leaves), [])
                variants.insert(0, program)
                del variants[VARIANTS:]
                self.latest = program.call
                tracer.close(result)
            tracer.hand_over()
            if tracer.runs:
                tracer.forget()
        return result

    def program_of(
        self, trace: Trace, structure: Any, leaves: list[Any], fixed: set[int], guards: Guards
    ) -> Program | None:
        """The program of a trace, or None where there is none; then it is noted why."""
        if fixed:
            self.fixed[structure] = fixed
        key = self.key(structure, leaves)
        room(self.traces, PROGRAMS, self.programs, self.unsettled, self.refused)
        self.traces[key] = self.traces.get(key, 0) + 1
        if len(self.traces) in MANY and (text := self.why_traced(leaves)):
            warnings.warn(text, TraceWarning, stacklevel=5)
        settled = guards.holds()
        self.unsettled[key] = 0 if settled else self.unsettled.get(key, 0) + 1
        if trace.remembers:
            self.refused[key] = "gradients go through what it assigns, or what was computed before"
        elif not settled:
            if self.unsettled[key] > FIRST:  # before, what is made in a first call may stay
                self.refused[key] = f"it changes what it reads: {', '.join(guards.changes())}"
        elif self.traces[key] > TRACES:
            self.refused[key] = f"what it reads changed {TRACES} times"
        else:
            key_of = host_replay().key() if current().backend == "cpu" else None
            writer = Writer(trace, structure, leaves, fixed, guards, key_of)
            if trace.differentiable:
                exact = trace.differentiated
                writer.scope["attrs"] = {
                    "graph": exact,
                    "backward": Jitted(functools.partial(gradients, exact), self.memory),
                    "again": lambda *given: execute(exact, given),
                }
            return Program(writer, self.function, self.renewed, self.memory)
        return None

    def why_traced(self, leaves: list[Any]) -> str:
        """What is said when one argument alone was another one in each trace; nothing otherwise."""
        count, found = len(self.traces), changing([*self.traces], leaves)
        if found is None or found[1] is not (count == MANY[1]):
            return ""
        path, number = found
        if number:
            return (
                f"{self.name} was traced {count} times, each for another value of {path}: give a "
                "float that only meets tensors and numbers, or a tensor, which programs read at "
                "each call"
            )
        return (
            f"{self.name} was traced {count} times, each for another object at {path}: give the "
            "tensors in it as arguments, or in a tuple, list or dict; a program is kept for an "
            "object, and keeps it"
        )

    def renewed(self, before: Any, after: Any) -> None:
        """A program has another function."""
        if self.latest is before:
            self.latest = after

    def rehearse(self, structure: Any, leaves: list[Any]) -> tuple[Any, ...]:
        """Trace a call without its effects; the values of the inputs of its program."""

        def trace(recorder: Callable[..., Tracer]) -> bool:
            self.traced(structure, leaves, recorder)
            return self.has(structure, leaves)

        return rehearse(self.function, leaves, trace, FIRST)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Trace and compile for calls with arguments like these, before the first one: tensors,
        gradients, parameters and states of optimizers stay what they are. States that only a first
        call makes (of a new optimizer) are made by it, and traced again; nothing is compiled then.

        Args:
            args, kwargs: of the call; a `cb.TensorSpec(shape, dtype)` stands for a tensor.

        Example:
            >>> import cubepy as cb
            >>> double = cb.jit(lambda x: x * 2)
            >>> double.compile(cb.TensorSpec((2,), cb.f32))
            >>> double(cb.tensor([1.0, 2.0])), sum(double.traces.values())
            (tensor([2., 4.]), 1)
        """
        leaves: list[Any] = []
        structure = leaves_of((args, kwargs), leaves)
        leaves = [leaf.zeros() if type(leaf) is TensorSpec else leaf for leaf in leaves]
        if any(isinstance(leaf, Handle) and leaf.value.call is not None for leaf in leaves):
            return  # gradients go on through what was before: the function runs as it is
        with self.lock:
            if not self.has(structure, leaves):
                values = self.rehearse(structure, leaves)
                for program in self.programs.get(self.key(structure, leaves), ()):
                    program.settle(values)

    def has(self, structure: Any, leaves: list[Any]) -> bool:
        """Whether calls of a kind have a program, or are refused one."""
        key = self.key(structure, leaves)
        return key in self.programs or key in self.refused

    def explain(self) -> Explanation:
        """What was traced and why, and all programs; `cb.explain(f, *args)` shows a call."""
        from cubepy.tensor.explained.report import Explanation

        return Explanation.of(self)


def compute(tracer: Tracer, trace: Trace, program: Program | None) -> None:
    """Compute what was traced, by its program if there is one."""
    if program is None:
        tracer.compute()
        return
    inputs, found = program.writer.fused.inputs, program.in_place
    held = [k for k in program.updated.values() if tracer.found[inputs[k]].kind == "held"]
    with writing if held else nullcontext():
        states = tracer.taken([inputs[k] for k in held]) if held else []
        try:
            own = dict(zip(held, freed(states), strict=True))
            outputs = program.compute(program.given(tracer.were, own), found)
        except BaseException:
            tracer.keep(states)
            raise
        through = trace.differentiable
        tracer.fulfil(outputs, program.writer.scope.get("attrs", {}), through)


@overload
def jit(function: Callable[..., Any], *, memory: int | None = None) -> Jitted: ...
@overload
def jit(*, memory: int | None = None) -> Callable[[Callable[..., Any]], Jitted]: ...
def jit(function: Callable[..., Any] | None = None, *, memory: int | None = None) -> Any:
    """A function of tensors, traced once for each kind of arguments and then run as one program.

    In the first call of a kind (shapes and dtypes of tensors, other arguments by value) the
    function runs on tensors without elements, and its ops are kept. They run then, and in later
    calls, without Python between them. Tensors
    that it reads from outside, such as parameters, are looked up in every call; what it gives to
    them (`assign_`, `+=`, `backward()`, the step of an optimizer) is given again. A Python float
    among the arguments that only meets tensors may be another one in every call.

    What is no op of tensors happens in the first call alone: printing, random numbers of NumPy,
    changes of lists.

    Args:
        function: of tensors, numbers and anything else, or a module.
        memory: at most so many bytes for what lies between inputs and results (activations): what
            does not fit until a later step reads it is computed again. Results are the same bits. A
            bound that is too small for the largest steps gives the least that is possible.

    Raises:
        ArgumentError: something that cannot be called, or a bound that is no positive int.

    Example:
        >>> import cubepy as cb
        >>> @cb.jit
        ... def scaled(x, factor):
        ...     return (x * factor).sum()
        >>> scaled(cb.tensor([1.0, 2.0]), 2.0), scaled(cb.tensor([1.0, 2.0]), 3.0)
        (tensor(6.), tensor(9.))
    """
    if memory is not None and (type(memory) is not int or memory < 1):
        raise ArgumentError(
            f"memory is a number of bytes, not {memory!r}", hint="e.g. cb.jit(f, memory=1 << 30)"
        )
    if function is None:
        return lambda f: jit(f, memory=memory)
    if not callable(function):
        raise ArgumentError(f"cb.jit takes a function, not {type(function).__name__}")
    return Jitted(function, memory)
