"""The demo's table as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from measure import Variant


def draw(
    variants: Sequence[Variant], cosines: Sequence[float], same: Sequence[float], path: Path
) -> None:
    """Bars for size, time and accuracy of every variant, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = [v.name for v in variants]
    panels = [
        ("weights of linear layers, MB", [v.linear_megabytes for v in variants], "{:.1f}"),
        ("one sentence, ms", [v.one_ms for v in variants], "{:.1f}"),
        ("batch of 32, ms", [v.batch_ms for v in variants], "{:.0f}"),
        ("same ten nearest as float32, %", [100 * share for share in same], "{:.0f}"),
        ("mean cosine to float32 (axis cut)", list(cosines), "{:.4f}"),
    ]
    figure, axes = plt.subplots(1, len(panels), figsize=(16, 3.4), layout="constrained")
    for axis, (title, values, form) in zip(axes, panels, strict=True):
        bars = axis.bar(names, values, color=[f"C{i}" for i in range(len(names))])
        axis.bar_label(bars, [form.format(v) for v in values], padding=2, fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.tick_params(axis="x", labelrotation=20, labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.12)
    low = min(0.95, min(cosines) - 0.01)
    axes[-1].set_ylim(low, 1 + 0.1 * (1 - low))
    figure.suptitle("all-MiniLM-L6-v2 on cubepy", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
