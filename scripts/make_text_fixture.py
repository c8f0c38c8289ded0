"""Write the small files that `tests/models` reads: needs torch, transformers and gguf.

    python scripts/make_text_fixture.py

Weights are random; what other libraries compute with them is in the files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "models" / "fixtures"


def pickles() -> None:
    """Two files of `torch.save`, of the kind of today and the old one."""
    import torch

    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    state: dict[str, Any] = {
        "weight": torch.nn.Parameter(weight),
        "half": torch.tensor([0.5, -2.0], dtype=torch.bfloat16),
        "shared": weight.T,
        "inner": [torch.zeros(2), torch.tensor([1, 2])],
        "epoch": 3,
    }
    torch.save(state, FIXTURES / "zip.pt")
    torch.save(state, FIXTURES / "legacy.pt", _use_new_zipfile_serialization=False)


def main(names: list[str]) -> None:
    """Make all fixtures, or those named."""
    FIXTURES.mkdir(exist_ok=True)
    made = {"pickles": pickles}
    for name in names or made:
        made[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
