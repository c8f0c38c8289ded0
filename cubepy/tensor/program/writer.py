"""The text of a program's call: whether it is of the program's kind, where its arrays are, and what
its results become.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import OutOfMemoryError
from cubepy.runtime import recording
from cubepy.runtime.device import current, gpu_of
from cubepy.runtime.generated import written
from cubepy.runtime.memory.pool import POOLED
from cubepy.tensor.array import Tensor
from cubepy.tensor.exposed import own
from cubepy.tensor.exposed import version as touched
from cubepy.tensor.fusion.optimise import fused
from cubepy.tensor.fusion.prepared import Prepared
from cubepy.tensor.fusion.structures.general import Fused
from cubepy.tensor.modes import mode
from cubepy.tensor.ops import written_in_place
from cubepy.tensor.program.differentiated import remember
from cubepy.tensor.program.form import DICTS
from cubepy.tensor.program.guards import Guards
from cubepy.tensor.program.plans.anew import around, given_anew, nbytes_of
from cubepy.tensor.program.plans.bundles import Bundles, words_of
from cubepy.tensor.program.plans.looked import Layouts, Looks, guarded, held_steadily, unless_noted
from cubepy.tensor.program.plans.reused import Reused
from cubepy.tensor.program.plans.states import Update
from cubepy.tensor.program.plans.steady import Exchanged, Memo
from cubepy.tensor.program.trace import Given, GradientGiven, Output, Source, Trace
from cubepy.tensor.program.watched import version
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import GradientForms, Number, Pending, Value, gradient_of, identities

MISS = object()
"""What a program gives for a call that is not of its kind, with nothing done."""


class Writer(Looks):
    """The text of calls of one kind.

    Args:
        trace: what the function did.
        structure: of the arguments.
        leaves: of the arguments that were traced.
        fixed: the floats among them that are part of the kind.
        guards: whether what the function read is as it was.
        short: what writes a key of arrays.

    Attributes:
        fused: what will run.
        prepared: what it has of its weights, or None.
        values: names of the arrays of its inputs; None for those that are not dense.
        stores: storages of those.
        inputs: names of the values of all inputs of the traced graph.
        home: the device that tensors are on; the current one where there are none.
        gpu: the same where it is a GPU, or None.
        numbers: the inputs of the traced graph that are numbers beside tensors.
        states: outputs by the inputs that they could be written to (see `plans.in_place`).
        updated: inputs by the outputs that are written to them.
    """

    def __init__(
        self,
        trace: Trace,
        structure: Any,
        leaves: Sequence[Any],
        fixed: set[int],
        guards: Guards,
        short: Layouts | None,
    ) -> None:
        super().__init__(trace, short)
        self.guards = guards
        homes = [v.storage.device for v in trace.values if type(v) is not Number]
        homes = homes + [*trace.homes] or [self.device]
        self.gpu = next((d for d in homes if gpu_of(d) is not None), None)
        self.home = self.gpu or homes[0]
        self.numbers = {n for n, v in enumerate(trace.values) if type(v) is Number}
        self.fused: Fused = fused(trace.graph, self.home, self.weights())
        self.prepared: Prepared | None = None
        self.scope |= {
            "MISS": MISS,
            "mode": mode,
            "recording": recording,
            "current": current,
            "home": self.home,
            "Value": Value,
            "Tensor": Tensor,
            "identities": identities,
            "new": object.__new__,
            "ref": weakref.ref,
            "remember": remember,
            "gradient_of": gradient_of,
            "asarray": np.asarray,
            "words_of": words_of,
            "OutOfMemoryError": OutOfMemoryError,
        }
        self.last: list[str] = []  # what happens once the call is known to be of the kind
        self.values: list[str | None] = []
        self.stores: list[Any] = []
        self.inputs: list[str] = []
        self.enabled = mode.enabled
        self.miss(f"mode.enabled is not {mode.enabled} or recording.detours")
        self.add("here = current()")
        self.miss("here is not device and here != device")
        self.arguments(structure, leaves, fixed)
        for n, (source, had) in enumerate(trace.gradients):
            self.names[Source("gradient", source)] = f"g{n}"
            self.add(f"g{n} = gradient_of({self.handle(source)})")
            self.miss(f"g{n} is None" if had else f"g{n} is not None")
        self.all_inputs(leaves)
        if self.known:
            self.layouts()
        if guards.guard is not None:
            self.scope |= {"holds": guards.guard.holds, "valid": guards.guard.valid}
            self.miss("not holds() and not valid()")
        if guards.watch.objects:
            self.scope |= {"watch": guards.watch, "version": version}
            self.miss("watch.seen != version[0] and not watch.holds()")
        self.states = given_anew(self)
        self.updated: dict[int, int] = {}
        self.known, trace.values = [], []  # a program keeps no arrays of one call

    def weights(self) -> list[int]:
        """The inputs that stay from call to call: tensors from outside that the function only
        reads, and by which it gives no gradients. On a GPU they are of interest to convolutions.
        """
        trace = self.trace
        given = {id(e.handle.of) for e in trace.effects}
        trained = trace.differentiable or any(type(e) is GradientGiven for e in trace.effects)
        graph = trace.graph
        here = self.home.backend == "cpu" and self.gpu is None
        convolves = self.gpu is not None and any(n.op == "conv" for n in graph.nodes)
        if not (here or convolves) or trained or trace.gradients:
            return []
        written = written_in_place(graph.nodes)
        return [
            n
            for n, (source, value) in enumerate(zip(trace.sources, trace.values, strict=True))
            if source.kind == "held"
            and graph.inputs[n] not in written
            and type(value.storage) is Dense
            and (type(value.storage.array) is np.ndarray if here else own(value.storage.array))
            and id(source.of) not in given
        ]

    def weights_made(self, named: dict[int, str]) -> None:
        """What was made of weights, made again if one has other elements.

        Args:
            named: names of their values.
        """
        values, fused = self.trace.graph.values, self.fused
        specs = {n: values[i] for n, i in enumerate(self.trace.graph.inputs)}
        self.prepared = Prepared(fused.preparations, specs, set(fused.inputs))
        self.scope |= {"prepared": self.prepared, "touched": touched}
        found = "".join(f"{named[n]}, " for n in self.prepared.inputs)
        self.add("state = prepared.state")
        self.add(f"if state[0] != ({found}) or state[1] != touched[0]:")
        self.add(f"    state = prepared.renew(({found}))")
        self.miss("state is None")
        names = [f"p{n}" for n in range(len(fused.preparations))]
        self.add(f"{''.join(f'{name}, ' for name in names)} = state[2]")
        self.kept += names

    def all_inputs(self, leaves: Sequence[Any]) -> None:
        """The arrays of the inputs of the graph, and of what is made of weights."""
        sources, found = self.trace.sources, dict[int, tuple[str, str | None, Any]]()
        steady = held_steadily(self.trace)

        def look() -> None:
            found.update({n: self.input(n, sources[n], leaves) for n in steady})
            if self.fused.preparations:
                self.weights_made({n: value for n, (value, *_) in found.items()})

        if steady:
            self.scope["memo"] = Memo([sources[n].of for n in steady])
            self.once("memo", look, bool(self.fused.preparations))
        for n, source in enumerate(sources):
            value, name, store = found.get(n) or self.input(n, source, leaves)
            self.inputs.append(value)
            if n in self.fused.inputs:
                self.values.append(name)
                self.stores.append(store if name is None else None)
        made = [f"p{n}" for n in range(len(self.fused.preparations))]
        self.values += made
        self.stores += [None] * len(made)

    def input(self, n: int, source: Source, leaves: Sequence[Any]) -> tuple[str, str | None, Any]:
        """An input of the graph: the names of its value and of its array, and its storage."""
        store: Any = None
        if source.kind == "argument":
            store = leaves[source.of].value.storage
            name: str | None = f"x{source.of}" if type(store) is Dense else None
        elif source.kind == "constant":
            store = source.of
            name = self.name("c", store.array) if type(store) is Dense else None
        elif source.kind == "number":
            text, dtype = source.of
            name = f"n{n}"
            self.last.append(f"n{n} = asarray({text}, {self.name('dtype', dtype.numpy)})")
        elif source.kind == "computed":
            name = f"n{n}"
            self.last.append(f"n{n} = {self.name('compute', source.of)}()")
        else:
            value = self.trace.values[n]
            store = value.storage
            name = self.tensor(f"_{n}", self.handle(source), value, n in self.fused.inputs)
        return self.value_of(n, source, store, name), name, store

    def value_of(self, n: int, source: Source, store: Any, name: str | None) -> str:
        """The value of an input, or the array of a number."""
        if source.kind == "argument":
            return f"v{source.of}"
        if source.kind == "constant":
            return self.name("value", Value(store))
        return str(name) if source.kind in ("number", "computed") else f"v_{n}"

    def function(
        self,
        middle: list[str],
        arrays: Sequence[str],
        scope: dict[str, Any],
        conditions: Sequence[str] = (),
        *,
        detours: bool = False,
        again: Reused | None = None,
        bundles: Bundles | None = None,
    ) -> Any:
        """The function `call(args, kwargs)`.

        Args:
            middle: lines that compute the outputs.
            arrays: their names, of the arrays of the outputs.
            scope: other names in these lines.
            conditions: expressions that must hold for the call to be of this kind.
            detours: whether it is called while no call is repeated.
            again: the results that may be those of an earlier call.
            bundles: what the lines have of arrays in place of themselves.
        """
        states = set(again.states) if again else set[int]()
        lines = list(self.lines)
        for first, last, noted in reversed(self.noted):
            if bundles is not None and noted[0] in bundles.words:
                names = bundles.words[noted[0]], bundles.arrays[noted[0]]
                lines[first:last] = unless_noted(*noted, names)
        if detours:
            lines[0] = f"if mode.enabled is not {self.enabled}:"
        for condition in conditions:
            lines += [f"if not ({condition}):", "    return MISS"]
        lines += [*self.last, *self.let_go(), "starved = False"]
        before, after = around(self)
        if before:
            scope = {**scope, "Update": Update}
            lines.append("update = Update()")
        lines += ["try:", *[f"    {line}" for line in (*before, *middle)]]
        lines += ["except OutOfMemoryError:", "    starved = True"]
        if after:
            lines += ["finally:", *[f"    {line}" for line in after]]
        lines.append("if starved:")
        parts = [line.strip().split(" = ")[:-1] for line in middle]
        made_here = {name for found in parts for name in found if name.isidentifier()}
        lines += [f"    {name} = None" for name in sorted(made_here)]  # the function needs memory
        lines += ["    return eagerly(*args, **kwargs)"]
        self.scope |= scope
        made: set[int] = set()
        rest: list[str] = []

        def tensor(n: int) -> str:
            if n not in made:
                made.add(n)
                rest.extend(_value(n) + [f"t{n} = new(Tensor)", f"t{n}.value = u{n}"])
            return f"t{n}"

        specs = [self.trace.graph.values[at] for at in self.trace.graph.outputs]
        result = self.shown(self.trace.result, tensor)
        if self.trace.differentiable:
            through = [f"u{n}" for n in self.trace.differentiable if n in made]
            inputs = "".join(f"{name}, " for name in self.inputs)
            rest.append(f"remember(attrs, ({inputs}), [{', '.join(through)}])")
        pending = self.pending(made)
        after, exchanged, new, keep = list[str](), list[Source](), list[str](), list[str]()
        for effect in self.trace.effects:
            handle = self.handle(effect.handle)
            if isinstance(effect, Given) and effect.output in self.updated:
                continue  # its handle has it already
            if isinstance(effect, Given):
                after += _value(effect.output, effect.output not in states)
                if effect.leaf:
                    after += [f"u{effect.output}.needs_grad = True"]
                    after += [f"u{effect.output}.handle = ref({handle})"]
                after.append(f"{handle}.value = u{effect.output}")
                exchanged.append(effect.handle)
            elif effect.to is None:
                after.append(f"{handle}._grad = None")
            elif effect.to in pending:
                after.append(f"{handle}._grad = pending")
            else:
                to = effect.to
                given = self.handle(to) if isinstance(to, Source) else tensor(to)
                after.append(f"{handle}._grad = {given}")
        for n, (array, spec) in enumerate(zip(arrays, specs, strict=True)):
            if n in self.updated or n in pending:
                continue
            if self.gpu is None:
                self.scope |= {f"shape_{n}": spec.shape, f"dtype_{n}": spec.dtype}
                store = [f"d{n} = new(Dense)", f"d{n}.array = {array}", f"d{n}.shape = shape_{n}"]
                store += [f"d{n}.dtype = dtype_{n}", f"d{n}.device = home"]
                if n in states:
                    new += [*store, f"u{n} = new(Value)", f"u{n}.storage = d{n}"]
                else:
                    lines += store
            else:
                lines.append(f"d{n} = Dense({array})")
        if again is not None:
            lines += ["if taken is None:", *[f"    {line}" for line in new]]
            lines.append(f"    taken = ({again.names})")
            keep = ["reused.keep(taken)"]
        lines += rest
        if pending:
            self.scope |= {"Pending": Pending, "forms": self.forms(pending, specs)}
            given = "".join(f"{arrays[n]}, " for n in pending)
            lines.append(f"pending = Pending(forms, ({given}))")
        if exchanged:
            held = Exchanged([source.of for source in exchanged if source.kind == "held"])
            others = [self.handle(source) for source in exchanged if source.kind != "held"]
            after = guarded(self.name("exchanged", held), others, after)
        lines += [*after, *keep, f"return {result}"]
        text = "\n".join(["def call(args, kwargs):", *[f"    {line}" for line in lines]])
        return written(text, "<program>", dict(self.scope))

    def pending(self, made: set[int]) -> list[int]:
        """The outputs that are small gradients of handles from outside, and nothing else: nobody
        may ever look at them. Large ones go when their handles let them go.

        Args:
            made: outputs of which tensors are made.
        """
        specs = [self.trace.graph.values[at] for at in self.trace.graph.outputs]
        others = made | {e.output for e in self.trace.effects if isinstance(e, Given)}
        others |= {*self.updated, *self.trace.differentiable}
        found: dict[int, None] = {}
        for effect in self.trace.effects:
            if isinstance(effect, GradientGiven) and type(effect.to) is int:
                if effect.handle.kind == "held" and self.gpu is None:
                    found[effect.to] = None
                else:
                    others.add(effect.to)
        return [n for n in found if n not in others and nbytes_of(specs[n]) < POOLED]

    def forms(self, pending: Sequence[int], specs: Sequence[Any]) -> GradientForms:
        """What makes tensors of the arrays of pending gradients, and whose they are."""
        home = self.home

        def make(array: np.ndarray) -> Tensor:
            return Tensor(Dense(array, home))

        numbers = {
            id(e.handle.of): pending.index(e.to)
            for e in self.trace.effects
            if isinstance(e, GradientGiven) and e.to in pending
        }
        return GradientForms(numbers, make)

    def let_go(self) -> list[str]:
        """Lines that let large gradients go which the call gives anew, without a look at them, so
        that there is no memory for both.
        """
        read = {self.handle(source) for source, had in self.trace.gradients if had}
        specs = [self.trace.graph.values[at] for at in self.trace.graph.outputs]
        given = [
            (self.handle(e.handle), specs[e.to])
            for e in self.trace.effects
            if isinstance(e, GradientGiven) and type(e.to) is int
        ]
        return [
            f"{handle}._grad = None"
            for handle, (shape, dtype) in given
            if handle not in read and nbytes_of((shape, dtype)) >= POOLED
        ]

    def shown(self, form: Any, tensor: Callable[[int], str]) -> str:
        """A result as text."""
        if isinstance(form, Output):
            return tensor(form.number)
        if isinstance(form, Source):
            return self.handle(form)
        if type(form) in (list, tuple) or hasattr(form, "_fields"):
            inner = "".join(self.shown(part, tensor) + ", " for part in form)
            if hasattr(form, "_fields"):
                return f"{self.name('type', type(form))}({inner})"
            return f"[{inner}]" if type(form) is list else f"({inner})"
        if type(form) in DICTS:
            inner = "".join(
                f"{self.name('key', k)}: {self.shown(v, tensor)}, " for k, v in form.items()
            )
            made = f"{{{inner}}}"
            return made if type(form) is dict else f"{self.name('type', type(form))}({made})"
        return self.name("k_", form)


def _value(n: int, new: bool = True) -> list[str]:
    """A value of the storage of an output, as it is when it is new."""
    made = [f"u{n} = new(Value)", f"u{n}.storage = d{n}"] if new else []
    return [*made, f"u{n}.id = next(identities)", f"u{n}.call = None", f"u{n}.needs_grad = False"]
