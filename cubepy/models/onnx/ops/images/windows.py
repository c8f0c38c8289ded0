"""What windows of convolutions and pools have in common: sizes, strides, dilations and pads."""

from __future__ import annotations

from typing import Any, NamedTuple

from cubepy.models.onnx.records import Call


class Windows(NamedTuple):
    """The windows of a convolution or pool along each axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def even(self) -> bool:
        """Whether as much is padded before as behind."""
        return self.before == self.after

    def widths(self) -> list[tuple[int, int]]:
        """(before, after) of all axes of a tensor with batch and channels first."""
        return [(0, 0), (0, 0), *zip(self.before, self.after, strict=True)]

    def spans(self) -> list[int]:
        """How far each window reaches."""
        return [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]


def windows(call: Call, size: tuple[int, ...], kernel: Any) -> Windows:
    """The windows that a node's attributes say, over axes of these sizes."""
    rank = len(size)
    kernel = tuple(int(k) for k in kernel)
    if len(kernel) != rank:
        raise call.refuse(f"windows of {list(kernel)} on {rank} axes")
    stride = tuple(call.get("strides") or [1] * rank)
    dilation = tuple(call.get("dilations") or [1] * rank)
    pads = call.get("pads") or [0] * (2 * rank)
    if len(stride) != rank or len(dilation) != rank or len(pads) != 2 * rank:
        raise call.refuse(f"strides, dilations and pads must be of {rank} axes")
    if min((*stride, *dilation, *kernel), default=1) < 1 or min(pads, default=0) < 0:
        raise call.refuse("strides, dilations and windows begin at 1, pads at 0")
    auto = call.get("auto_pad", "NOTSET")
    before, after = list(pads[:rank]), list(pads[rank:])
    if auto == "VALID":
        before = after = [0] * rank
    elif auto.startswith("SAME"):
        for k in range(rank):
            count = -(-size[k] // stride[k])
            span = dilation[k] * (kernel[k] - 1) + 1
            more = max(0, (count - 1) * stride[k] + span - size[k])
            small, large = more // 2, more - more // 2
            before[k], after[k] = (small, large) if auto == "SAME_UPPER" else (large, small)
    return Windows(kernel, stride, dilation, tuple(before), tuple(after))
