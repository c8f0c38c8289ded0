"""The AMD processors that code is made for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cubepy.errors import BackendCompileError

KNOWN = {
    "gfx90a": "Instinct MI200",
    "gfx942": "Instinct MI300",
    "gfx950": "Instinct MI350",
    "gfx1100": "Radeon RX 7900",
    "gfx1201": "Radeon RX 9070",
}
"""Processors by LLVM's names, with products that have them: CDNA 2 to 4, RDNA 3 and 4."""


@dataclass(frozen=True)
class Architecture:
    """A processor, by LLVM's name of it, such as gfx942."""

    name: str

    @staticmethod
    def of(text: str) -> Architecture:
        """From a name; what HIP reports ends in settings, such as "gfx942:sramecc+:xnack-".

        Raises:
            BackendCompileError: no code is made for this processor.
        """
        name = text.partition(":")[0]
        if name not in KNOWN:
            raise BackendCompileError(
                f"no code is made for the processor {text!r}",
                hint=f"there is code for {', '.join(KNOWN)}",
            )
        return Architecture(name)

    def __str__(self) -> str:
        return self.name

    @property
    def major(self) -> int:
        """The generation: 9 is CDNA, 11 and 12 are RDNA 3 and 4."""
        found = re.fullmatch(r"gfx(\d+)\d[0-9a-f]", self.name)
        assert found is not None
        return int(found[1])

    @property
    def plane(self) -> int:
        """Units of a plane; RDNA could have 64, too, which is not used."""
        return 64 if self.major == 9 else 32

    def planes_per_simd(self, units: int, cubes: int) -> int:
        """Planes of so many cubes that each of a core's four SIMD units has at once, at most what
        it keeps registers for; a core is CDNA's compute unit, RDNA's work-group processor.
        """
        most = 8 if self.major == 9 else 16
        return min(most, -(-cubes * -(-units // self.plane) // 4))

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        return (160 if self.name == "gfx950" else 64) << 10

    @property
    def features(self) -> str:
        """What LLVM is told besides the processor's name.

        Halves of registers (`v3.h`) are not used: where one is written on a path of its own, LLVM
        22 drops what was loaded into the other, or ends the process ("register isn't live").
        """
        whole = "" if self.major == 9 else ",-real-true16"
        return f"+wavefrontsize{self.plane}{whole}"
