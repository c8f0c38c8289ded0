"""Tokenizers and chat templates against those of llama.cpp's tests, out of the source package of
llama-cpp-python.

    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36
    PYTHONPATH=. python scripts/golden_texts.py llama_cpp_python-0.3.36.tar.gz

Vocabularies have texts (`.inp`) and the tokens that they become (`.out`). Templates are rendered
here and by transformers' environment of jinja2; texts must be equal, or both refuse.
"""

from __future__ import annotations

import argparse
import json
import tarfile
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from cubepy.errors import CubeError
from cubepy.models.formats.gguf import read_gguf
from cubepy.models.generation.chat import ChatTemplate
from cubepy.models.generation.tokenizer import gguf_tokenizer

CUT = "\n__ggml_vocab_test__\n"
MESSAGES: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hello"}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  What is 1 + 1?\n"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "Größe & <b>?"},
    ],
]
MARKS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def vocabulary(path: Path) -> str:
    """What is wrong with a vocabulary; an empty text if nothing is."""
    try:
        tokenizer = gguf_tokenizer(read_gguf(path), path.name)
    except CubeError as error:
        return f"refused: {error.message[:120]}"
    assert tokenizer is not None
    texts = path.with_suffix(".gguf.inp").read_text("utf-8").split(CUT)
    right = [
        [int(n) for n in line.split()]
        for line in path.with_suffix(".gguf.out").read_text().splitlines()
    ]
    if texts and len(texts) == len(right) + 1:
        texts.pop()
    wrong = []
    for text, tokens in zip(texts, right, strict=True):
        found = tokenizer.pieces.encode(text, add_special_tokens=False).ids
        if found != tokens:
            wrong.append((text, found, tokens))
    if not wrong:
        return ""
    return f"{len(wrong)} of {len(texts)} texts differ, such as {wrong[0]!r}"[:300]


def reference(text: str, messages: list[dict[str, Any]]) -> str:
    """What jinja2 gives, set up as transformers sets it up."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise ValueError(message)

    def as_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_generation(), loopcontrols]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    template = environment.from_string(text)
    return template.render(messages=messages, add_generation_prompt=True, **MARKS)


def _generation() -> Any:
    """Transformers' tag `generation`, which marks what the assistant says."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = frozenset(["generation"])

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

        def _said(self, caller: Any) -> str:
            return caller()

    return Generation


def template(path: Path) -> str:
    """What is wrong with a template; an empty text if nothing is."""
    text = path.read_text("utf-8")
    for messages in MESSAGES:
        try:
            right: str | None = reference(text, messages)
        except Exception as error:
            right, why = None, f"{type(error).__name__}: {error}"
        try:
            found: str | None = ChatTemplate(text, MARKS).render(messages)
        except CubeError as error:
            if right is not None:
                return f"refused: {error.message[:200]}"
            continue
        if right is None:
            return f"it was not refused, as jinja2 did: {why}"[:200]
        if found != right:
            at = next((n for n, (a, b) in enumerate(zip(found, right)) if a != b), -1)
            return f"texts differ from letter {at} on: {found[at:][:60]!r}, {right[at:][:60]!r}"
    return ""


def main() -> None:
    """Judge all files of the package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path, help="the .tar.gz, or a folder with models/")
    package = parser.parse_args().package
    with tempfile.TemporaryDirectory() as folder:
        if package.is_file():
            with tarfile.open(package) as file:
                wanted = [m for m in file.getmembers() if "/llama.cpp/models/" in m.name]
                file.extractall(folder, wanted, filter="data")
            package = Path(folder)
        vocabularies = sorted(
            p for p in package.rglob("*.gguf") if p.with_suffix(".gguf.inp").is_file()
        )
        for title, judge, paths in (
            ("vocabularies", vocabulary, vocabularies),
            ("templates", template, sorted(package.rglob("*.jinja"))),
        ):
            found = {path.name: judge(path) for path in paths}
            wrong = {name: why for name, why in found.items() if why}
            print(f"{len(found) - len(wrong)} of {len(found)} {title} agree")
            for name, why in wrong.items():
                print(f"  {name}: {why}")


if __name__ == "__main__":
    main()
