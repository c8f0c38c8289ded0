"""Machine code that replays the launches of a call on a GPU (see `llvm.replay_table`): one call
from Python, however many.

Python needs half a microsecond to pass the arguments of a launch to the driver, and more to put
addresses into blocks. An operand is an address that is given: of an array of the call, or of memory
that it takes. The head of a table is the context and the addresses of functions of the driver; rows
of this backend are:

    maps        word where a tensor map begins, operand, bytes from there
    parameters  number, from 0, and the word of the blocks at which a parameter of a launch begins
    steps       number, kind, function, three cubes, three units, bytes of shared memory, first
        parameter or word, configuration
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import ir

from cubepy.backends.gpu.native.driver import Context
from cubepy.backends.gpu.run import F32, INTEGER, MAP_WORDS, GpuRunner
from cubepy.backends.llvm.machine_code import REFUSED, loaded
from cubepy.backends.llvm.replay_table import LINE, Address, ReplayCode, Table
from cubepy.backends.llvm.word_code import number, word
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.symbolic.number import is_symbol

SYMBOL = "cubepy_gpu_replay"
KINDS = {"maps": 3, "parameters": 2, "steps": 12}
FUNCTIONS = ("current", "set_current", "launch", "launch_configured", "move_tensor_map")
PLAIN, CONFIGURED, OTHER = range(3)  # kinds of steps
_STREAM = 4  # the word of a configuration where the stream is; then attributes and their number
_int = ir.IntType(32)


class _Function(ReplayCode):
    """The functions while they are written."""

    def __init__(self) -> None:
        super().__init__(SYMBOL, 3, 1 + len(FUNCTIONS), KINDS)
        _, self.stream, self.given = self.inside.args
        self.launch, self.extended, self.replace = self.functions(self.table)[2:]
        self.starts = self.room(self.count("parameters"))
        self.code = self.b.alloca(_int)

    def operand(self, which: Any) -> Any:
        """One of the addresses that were given."""
        return self.load(self.word_at(self.given, which))

    def functions(self, table: Any) -> list[Any]:
        """The addresses of functions of the driver."""
        return [self.load(table, 1 + n) for n in range(len(FUNCTIONS))]

    def maps(self, row: Any) -> None:
        """Move a tensor map to an operand."""
        load, target = self.load, self.word_at(self.block, self.load(row))
        address = self.b.add(self.operand(load(row, 1)), load(row, 2))
        failed = self.call_at(self.replace, target, address, gives=_int)
        self.refuse(self.b.icmp_signed("!=", failed, ir.Constant(_int, 0)))

    def parameters(self, row: Any) -> None:
        """Where the driver finds a parameter."""
        begin = self.word_at(self.block, self.load(row, 1))
        self.store(self.word_at(self.starts, self.load(row)), begin)

    def steps(self, row: Any) -> None:
        """A launch, or another call of the driver; the first error ends the replay."""
        b, load, stream = self.b, self.load, self.stream
        kind, function, first = load(row, 1), load(row, 2), load(row, 10)
        taken, code = self.word_at(self.starts, first), self.code
        with b.if_else(b.icmp_signed("==", kind, number(PLAIN))) as (plain, special):
            with plain:
                sizes = [b.trunc(load(row, k), _int) for k in range(3, 10)]
                given = (function, *sizes, stream, taken, number(0))
                b.store(self.call_at(self.launch, *given, gives=_int), code)
            with special:
                configured = b.icmp_signed("==", kind, number(CONFIGURED))
                with b.if_else(configured) as (by_configuration, other):
                    with by_configuration:
                        config = self.word_at(self.block, load(row, 11))
                        self.store(self.word_at(config, number(_STREAM)), stream)
                        given = (config, function, taken, number(0))
                        b.store(self.call_at(self.extended, *given, gives=_int), code)
                    with other:
                        words = self.word_at(self.block, first)
                        given = (*(load(words, n) for n in range(3)), stream)
                        b.store(self.call_at(function, *given, gives=_int), code)
        failed = b.load(code)
        error = b.or_(b.shl(b.zext(failed, word), number(32)), load(row))
        self.leave(b.icmp_signed("!=", failed, ir.Constant(_int, 0)), error)

    def entry(self) -> None:
        """The function that Python calls: it turns Python's numbers into words, and lets other
        threads go on.

        It works in the context of the table, and leaves that of the thread as it was.
        """
        _, values, count = self.begin(SYMBOL).args
        b, words = self.b, self.room(count)
        distance = b.sub(words, values)

        def convert(row: Any) -> None:
            self.store(b.add(row, distance), self.python("PyLong_AsLongLong", self.load(row)))

        self.rows(values, count, 1, convert)
        thread = self.python("PyEval_SaveThread")
        given, table, own = self.word_at(words, number(2)), self.load(words), self.room(number(1))
        current, set_current = self.functions(table)[:2]
        self.store(own, number(0))
        self.call_at(current, own, gives=_int)
        elsewhere = b.icmp_signed("!=", self.load(own), self.load(table))
        with b.if_then(elsewhere):
            self.call_at(set_current, self.load(table), gives=_int)
        code = b.call(self.inside, (table, self.load(words, 1), given))
        with b.if_then(elsewhere):
            self.call_at(set_current, self.load(own), gives=_int)
        self.python("PyEval_RestoreThread", thread, gives=ir.VoidType())
        b.ret(self.python("PyLong_FromLongLong", code))


def text() -> str:
    """The function `(table, stream, addresses...)` of Python's numbers as LLVM IR.

    It gives 0, REFUSED with nothing done, or the driver's error above 32 bits of the number of a
    step, from 1.
    """
    code = _Function()
    code.read()
    code.entry()
    return code.text()


@cache
def entry() -> Any:
    """The machine code for Python: through ctypes the call would take longer than the code
    itself.
    """
    return loaded(SYMBOL, text, __file__)


class GpuTable(Table):
    """A table of launches on a GPU: operands are the addresses of the call's arrays, then those of
    the memory that it takes.

    Args:
        where: the GPU.

    Attributes:
        names: of the kernels, by step.
    """

    def __init__(self, where: Context) -> None:
        super().__init__(KINDS)
        self.context, self.names, self.runners = where, list[str](), list[GpuRunner]()
        self.address_of = where.driver.api().address

    def writes(self, prepared: Any) -> Sequence[int]:
        runner = prepared.runner
        if not isinstance(runner, GpuRunner):
            raise Unsuitable("a launch on another device")
        return [n for n, _, writes in (*runner.arrays, *runner.maps) if writes]

    def launch(
        self,
        runner: GpuRunner,
        leaves: Sequence[Any],
        addresses: Sequence[Address | None],
        flag: Any = None,
    ) -> None:
        if runner.empty:
            return
        if any(leaves[n].address & runner.loose for n, _, _ in runner.arrays):
            runner = runner.elsewhere(leaves)
        if runner.fault_word >= 0 or flag is not None:
            raise Unsuitable("a kernel that reports faults")
        words = list(runner.block)
        for _, at, _ in runner.maps:
            words[at : at + MAP_WORDS] = [0] * MAP_WORDS  # they lie elsewhere
        for n, at, kind in runner.numbers:
            words[at] = _bits(leaves[n], kind)
        begin = self.words(words)
        for n, at, _ in runner.arrays:
            self.address(begin + at, leaves[n].address, addresses[n])
        starts = {at: begin + at for at in runner.starts}
        for n, at, _ in runner.maps:
            starts[at] = self.map(runner, leaves[n])
            where = addresses[n]
            if where is not None:
                if not self.address_of("move_tensor_map"):
                    raise Unsuitable("a driver that cannot move tensor maps")
                self.rows["maps"].append((starts[at], *where))
        first, config = len(self.rows["parameters"]), 0
        self.rows["parameters"] += [(first + n, starts[at]) for n, at in enumerate(runner.starts)]
        if runner.config is not None:
            config = self.words(self.configuration(runner))
        kind = PLAIN if runner.config is None else CONFIGURED
        self.step(kind, runner.head[0].value or 0, *runner.head[1:], first, config)
        self.names.append(runner.exe.program.name)
        self.runners.append(runner)

    def configuration(self, runner: GpuRunner) -> list[int]:
        """The words of the native description of a launch."""
        return list(struct.unpack(f"{len(bytes(runner.config)) // 8}q", runner.config))

    def map(self, runner: GpuRunner, value: Any) -> int:
        """Add a tensor map; gives the number of its first word."""
        encoded = struct.unpack(f"{MAP_WORDS}q", runner.encoded(value))
        return self.words(encoded, LINE // 8)

    def address(self, word: int, address: int, slot: Address | None) -> None:
        """A word of the blocks is an address that stays, or one of an operand."""
        if slot is None:
            self.blocks[word] = address
        else:
            self.put(word, *slot)

    def call(
        self, function: Any, arguments: Sequence[Any], addresses: Sequence[Address | None]
    ) -> None:
        target, value = arguments
        name, second = "fill", value
        if function.__name__ == "copy":
            if value.device != target.device:
                raise Unsuitable("a copy between devices")
            name, second = "copy", value.address
        begin = self.words([0, 0, target.nbytes])
        self.address(begin, target.address, addresses[0])
        self.address(begin + 1, second, addresses[1])
        self.step(OTHER, self.address_of(name), *[0] * 7, begin, 0)
        self.names.append(name)

    def head(self) -> list[int]:
        """The words at the beginning."""
        return [self.context.handle, *[self.address_of(name) for name in FUNCTIONS]]

    def moving(self) -> set[int]:
        """The words that hold addresses of operands, or pointers of a process."""
        first = self.first_word(1 + len(FUNCTIONS))
        found = {first + row[0] for kind in ("operands", "maps") for row in self.rows[kind]}
        for _, kind, *_, config in self.rows["steps"]:
            if kind == CONFIGURED:
                found |= {first + config + k for k in range(_STREAM, _STREAM + 3)}
        return found

    def ready(self) -> tuple[Callable[..., int], int, Any]:
        table = self.laid_out(self.head())
        return entry(), ctypes.addressof(table), (table, self.runners)

    def failed(self, code: int) -> None:
        if code != REFUSED:
            name = self.names[(code & 0xFFFFFFFF) - 1]
            self.context.check(code >> 32, f"launching {name}")


class SymbolicTable(GpuTable):
    """A table among whose words are symbols.

    Attributes:
        tensor_maps: tensor maps: their first words among those of the blocks, runners, leaves.
    """

    def __init__(self, where: Context) -> None:
        super().__init__(where)
        self.tensor_maps: list[tuple[int, GpuRunner, Any]] = []

    def map(self, runner: GpuRunner, value: Any) -> int:
        begin = self.words([0] * MAP_WORDS, LINE // 8)
        self.tensor_maps.append((begin, runner, value))
        return begin

    def clear(self) -> None:
        super().clear()
        self.tensor_maps.clear()
        self.runners.clear()

    def configuration(self, runner: GpuRunner) -> list[int]:
        words = super().configuration(runner)
        _, x, y, z, units, *_ = runner.head  # it begins with these, of 32 bits each
        words[:2] = x | y << 32, z | units << 32
        return words

    def ready(self) -> tuple[Callable[..., int], int, Any]:
        return entry(), 0, None  # another table each time


def _bits(value: Any, kind: int) -> int:
    """A number as the word of a block."""
    if is_symbol(value):
        return value if kind == INTEGER else value.trace.apply(_bits, value, kind)  # type: ignore[no-any-return]
    if kind == INTEGER:
        value = int(value) & (1 << 64) - 1
        return value - (1 << 64) if value >= 1 << 63 else value
    raw = struct.pack("<fi", value, 0) if kind == F32 else struct.pack("<d", value)
    return int(struct.unpack("<q", raw)[0])
