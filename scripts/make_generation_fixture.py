"""Write what transformers' logits processors and beam search give, for `tests/models`.

PYTHONPATH=. python scripts/make_generation_fixture.py      (an environment with transformers)
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.models.folders import FIXTURES, fixture, folder

PROCESSORS: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"temperature": 1.5, "top_k": 5},
    {"top_p": 0.6},
    {"top_p": 0.05},
    {"min_p": 0.2},
    {"typical_p": 0.4},
    {"typical_p": 0.9, "temperature": 2.0},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7, "top_k": 9, "top_p": 0.8},
    {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.8},
]
BEAMS: list[dict[str, Any]] = [
    {"num_beams": 3},
    {"num_beams": 4, "length_penalty": 2.0},
    {"num_beams": 3, "length_penalty": 0.0},
    {"num_beams": 3, "early_stopping": True},
    {"num_beams": 2, "repetition_penalty": 1.4},
]


def processed(scores: torch.Tensor, tokens: torch.Tensor, options: dict[str, Any]) -> np.ndarray:
    """The distribution of a row after transformers' processors, in its order."""
    from transformers import generation as g

    steps: list[Any] = []
    if "repetition_penalty" in options:
        steps.append(g.RepetitionPenaltyLogitsProcessor(options["repetition_penalty"]))
    if "temperature" in options:
        steps.append(g.TemperatureLogitsWarper(options["temperature"]))
    if "top_k" in options:
        steps.append(g.TopKLogitsWarper(options["top_k"]))
    if "top_p" in options:
        steps.append(g.TopPLogitsWarper(options["top_p"]))
    if "min_p" in options:
        steps.append(g.MinPLogitsWarper(options["min_p"]))
    if "typical_p" in options:
        steps.append(g.TypicalLogitsWarper(options["typical_p"]))
    for step in steps:
        scores = step(tokens, scores)
    return scores.softmax(-1)[0].numpy()


def main() -> None:
    """Write generation.npz."""
    torch.manual_seed(0)
    arrays: dict[str, Any] = {}
    scores, tokens = torch.randn(6, 61).double() * 3, torch.randint(0, 61, (6, 8))
    arrays["scores"], arrays["tokens"] = scores.numpy(), tokens.numpy()
    arrays["distributions"] = np.stack(
        [
            np.stack([processed(s[None].clone(), t[None], o) for o in PROCESSORS])
            for s, t in zip(scores, tokens, strict=True)
        ]
    )
    found = []
    with tempfile.TemporaryDirectory() as path:
        where = folder(Path(path) / "llama", fixture("decoders")["llama"])
        model = transformers.AutoModelForCausalLM.from_pretrained(where).eval()
        for seed in range(4):
            torch.manual_seed(seed)
            prompt = torch.randint(1, 61, (1, 5 + seed))
            greedy = model.generate(prompt, max_new_tokens=12, eos_token_id=None, pad_token_id=0)
            for options in BEAMS:
                for end in (None, int(greedy[0, prompt.shape[1] + 5])):
                    made = model.generate(
                        prompt,
                        max_new_tokens=12,
                        num_return_sequences=options["num_beams"],
                        do_sample=False,
                        eos_token_id=end,
                        pad_token_id=0,
                        return_dict_in_generate=True,
                        output_scores=True,
                        **options,
                    )
                    texts = made.sequences[:, prompt.shape[1] :].tolist()
                    if end is not None:  # what is behind it is padding
                        texts = [t[: t.index(end) + 1] if end in t else t for t in texts]
                    found.append(
                        {
                            "prompt": prompt[0].tolist(),
                            "options": options,
                            "end": end,
                            "texts": texts,
                            "scores": made.sequences_scores.tolist(),
                        }
                    )
    said = json.dumps({"processors": PROCESSORS, "beams": found}).encode()
    arrays["said"] = np.frombuffer(said, np.uint8)
    np.savez_compressed(FIXTURES / "generation.npz", **arrays)
    print((FIXTURES / "generation.npz").stat().st_size)


if __name__ == "__main__":
    main()
