"""Tensors, profiles and reports show themselves in a notebook: short, and with nothing in them
taken for HTML.
"""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import numpy as np

import cubepy as cb
from cubepy import kernels as K
from cubepy import nn, quant
from cubepy.runtime.notebook import LONGEST, preformatted


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shown(thing: object) -> str:
    text = str(thing._repr_html_())  # type: ignore[attr-defined]
    tags = Tags(text)
    assert tags.open == [] and tags.seen == {"div", "b", "pre"}
    assert len(text) < 2 * LONGEST
    return html.unescape(re.sub("<[^>]*>", "\n", text))


def test_a_tensor_shows_its_kind_and_elements() -> None:
    text = shown(cb.tensor(np.arange(6, dtype=np.float32).reshape(2, 3)))
    assert "tensor f32 (2, 3) on cpu" in text and "[3., 4., 5.]" in text
    assert len(shown(cb.tensor(np.zeros((500, 500), np.float32)))) < 2000


def test_a_profile_shows_its_table() -> None:
    with cb.profile() as found:
        K.cumsum(np.ones(100, np.float32))
    assert all(name in shown(found) for name in found.kernels)


def test_a_report_shows_its_table_with_the_names_of_layers_escaped() -> None:
    model = nn.Module()
    setattr(model, "a<b>&c", nn.Linear(64, 64))
    report = quant.quantize(model, "int8", measure_speed=False).report
    assert "a<b>&c" in shown(report) and "int8" in shown(report)


def test_long_texts_are_cut() -> None:
    assert "5 characters more" in preformatted("x", "y" * (LONGEST + 5))
