"""The text of a kernel, taken to pieces: instructions, labels, data, what its descriptor says."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.backends.hip.emulator.wave import Wave

Step = Callable[["Wave"], "int | None"]
"""What a line does to a wave; gives where to go on, or one of the following."""
END, BARRIER = -1, -2
IGNORED = (
    "s_waitcnt", "s_wait_", "s_nop", "s_clause", "s_delay_alu", "s_sleep", "s_inst_prefetch",
    "s_set_inst_prefetch", "s_setprio", "s_code_end", "s_setreg", "s_icache", "s_dcache",
    "s_sendmsg", "s_prefetch", "s_barrier_signal", "buffer_gl0_inv", "buffer_gl1_inv", "buffer_inv",
    "buffer_wbl2", "buffer_wbinv", "global_inv", "global_wb", "v_nop",
)  # fmt: skip
"""Waits, hints and caches, which are not modelled."""
_SIZES = {".byte": 1, ".short": 2, ".long": 4, ".quad": 8, ".zero": 0}


class Program:
    """One kernel.

    Attributes:
        lines: its instructions, without those that are ignored; `labels` and branches count them.
        code: the same as functions of a wave.
        descriptor: the numbers of `.amdhsa_` directives.
        hidden: where the runtime leaves what, behind the kernel's own arguments.
        data: addresses of constants, by their symbols.
    """

    def __init__(self, text: str) -> None:
        numbers = re.findall(r"^\s*\.amdhsa_(\w+)\s+(-?(?:0x[0-9a-f]+|\d+))\s*$", text, re.M)
        self.descriptor = {name: int(value, 0) for name, value in numbers}
        found = re.search(r"^\s*\.amdhsa_kernel\s+(\S+)", text, re.M)
        assert found is not None, "there is no kernel"
        self.name = found[1]
        self.wave = 32 if self.descriptor.get("wavefront_size32") else 64
        self.lines: list[str] = []
        self.labels: dict[str, int] = {}
        self._read(text)
        self.hidden: dict[str, int] = {}
        for part in re.split(r"\n\s+- ", text[text.find("amdhsa.kernels") :]):
            kind = re.search(r"\.value_kind:\s+(hidden_\w+)", part)
            offset = re.search(r"\.offset:\s+(\d+)", part)
            if kind and offset:
                self.hidden[kind[1]] = int(offset[1])
        size = re.search(r"\.kernarg_segment_size:\s*(\d+)", text)
        self.argument_bytes = int(size[1]) if size else self.descriptor.get("kernarg_size", 0)
        self.data: dict[str, int] = {}
        self.kept: list[Any] = []
        self._constants(text)
        self.code: list[Step] = []

    def _read(self, text: str) -> None:
        inside = False
        for raw in text.splitlines():
            line = raw.split(";")[0].strip()
            if line == f"{self.name}:":
                inside = True
            elif inside and line.startswith((".section", ".amdhsa_kernel")):
                return
            elif inside and line.endswith(":"):
                self.labels[line[:-1]] = len(self.lines)
            elif inside and line and not line.startswith((".", *IGNORED)):
                self.lines.append(line)

    def _constants(self, text: str) -> None:
        """Put the data behind each symbol of a table into memory."""
        pattern = r"^([\w.$]+):\s*\n((?:\s*\.(?:byte|short|long|quad|zero)\s+[^\n]+\n)+)"
        for symbol, body in re.findall(pattern, re.sub(r"[ \t]*;[^\n]*", "", text), re.M):
            out = b""
            for kind, value in re.findall(r"(\.\w+)\s+(\S+)", body):
                size = _SIZES[kind]
                number = int(value, 0)
                mask = (1 << 8 * size) - 1
                out += (number & mask).to_bytes(size, "little") if size else bytes(number)
            self.kept.append(ctypes.create_string_buffer(out, len(out)))
            self.data[symbol] = ctypes.addressof(self.kept[-1])

    def address(self, symbol: str) -> int:
        """Where constants lie; of a label, the number of its line."""
        return self.labels[symbol] if symbol in self.labels else self.data[symbol]

    def allocations(self) -> list[tuple[int, int]]:
        """Where the constants lie."""
        return [(a := ctypes.addressof(x), a + len(x)) for x in self.kept]
