"""Attention as a recurrence: a matrix of states that each step decays, corrects and writes."""

from __future__ import annotations

import math
from typing import Any

from cubepy import tensor as T
from cubepy.models.onnx.ops.sequence.attention import heads_of
from cubepy.models.onnx.ops.sequence.recurrent import along
from cubepy.models.onnx.records import Call, operator
from cubepy.tensor import Tensor

RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""By rule: whether states decay, whether what is written is corrected."""


@operator("LinearAttention")
def linear_attention(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """S = exp(g) S + k (beta (v - S^T k))^T, read by q (Yang et al., 2024)."""
    rule = call.get("update_rule", "gated_delta")
    if rule not in RULES:
        raise call.refuse(f"the rule {rule!r}")
    gated, corrected = RULES[rule]
    if gated != (decay is not None) or corrected != (beta is not None):
        raise call.refuse(f"the rule {rule!r} and its inputs do not go together")
    heads, keys = call["q_num_heads"], call["kv_num_heads"]
    b, steps, _ = q.shape
    dtype, kept = q.dtype, q.dtype if state is None else state.dtype
    queries = heads_of(q, heads).astype("f32").permute(2, 0, 1, 3)
    k4, v4 = (heads_of(x, keys).astype("f32").permute(2, 0, 1, 3) for x in (k, v))
    dk, dv = k4.shape[3], v4.shape[3]
    if state is None:
        start = T.zeros((b, keys, dk, dv), dtype="f32", device=q.device)
    else:
        start = state.astype("f32")
    gates: Any = T.ones((steps, b, 1, 1), dtype="f32", device=q.device)
    if decay is not None:
        gates = decay.astype("f32").reshape(b, steps, keys, -1).permute(1, 0, 2, 3).exp()
    betas: Any = T.ones((steps, b, 1, 1), dtype="f32", device=q.device)
    if beta is not None:
        betas = beta.astype("f32").reshape(b, steps, -1, 1).permute(1, 0, 2, 3)
    scale = call.get("scale", 0.0) or 1 / math.sqrt(dk)

    def step(now: tuple[Tensor, ...], part: Any) -> tuple[Tensor, ...]:
        _, matrix = now
        query, key, value, gate, strength = part
        matrix = matrix * gate.unsqueeze(-1) if gated else matrix
        if corrected:
            found = (key.unsqueeze(-2) @ matrix).squeeze(-2)
            value = strength * (value - found)
        matrix = matrix + key.unsqueeze(-1) * value.unsqueeze(-2)
        read = matrix if heads == keys else matrix.repeat_interleave(heads // keys, 1)
        return (query.unsqueeze(-2) @ read).squeeze(-2) * scale, matrix

    zero = T.zeros((b, heads, dv), dtype="f32", device=q.device)
    (_, last), outputs = along(step, (zero, start), (queries, k4, v4, gates, betas), False)
    made = outputs.permute(1, 0, 2, 3).reshape(b, steps, heads * dv)
    return made.astype(dtype), last.astype(kept)
