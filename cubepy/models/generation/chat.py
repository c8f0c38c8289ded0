"""Chat templates: messages as the text that a model was trained on, in jinja2's sandbox.

A template is a program from a file. The sandbox keeps it from Python; what it may compute is
limited too: steps of ranges, lengths of texts.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from cubepy.errors import ArgumentError

MOST_STEPS = 100_000
MOST_TEXT = 10_000_000


class ChatTemplate:
    """A template and the tokens that it names.

    Args:
        text: of the template.
        marks: such as bos_token, by name.

    Example:
        >>> template = ChatTemplate("<{{ messages[0].role }}>{{ messages[0].content }}")
        >>> template.render([{"role": "user", "content": "Hello"}])
        '<user>Hello'
    """

    def __init__(self, text: str, marks: Mapping[str, str] | None = None) -> None:
        self.text, self.marks = text, dict(marks or {})

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "marks": self.marks}  # what was compiled is of one process

    @cached_property
    def compiled(self) -> Any:
        """The template, compiled in a sandbox."""
        try:
            sandbox = importlib.import_module("jinja2.sandbox")
            jinja2 = importlib.import_module("jinja2")
        except ImportError:
            raise ArgumentError(
                "chat templates need the package jinja2", hint="pip install 'cubepy[models]'"
            ) from None
        environment = _sandboxed(sandbox.ImmutableSandboxedEnvironment)
        try:
            return environment.from_string(self.text)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ArgumentError(f"the chat template is damaged: {str(error)[:200]}") from None

    def render(self, messages: Sequence[Mapping[str, Any]], begin: bool = True) -> str:
        """The text of messages.

        Args:
            messages: tables with role and content.
            begin: whether the answer of the model begins at its end.

        Raises:
            ArgumentError: the template refuses these messages, or does what it may not.
        """
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise ArgumentError("a message is a table with role and content, both texts")
        compiled = self.compiled
        compiled.environment.steps = 0
        pieces, length = [], 0
        given = {"messages": [dict(m) for m in messages], "add_generation_prompt": begin}
        try:
            for piece in compiled.generate(**given, **self.marks):
                length += len(piece)
                if length > MOST_TEXT:
                    raise OverflowError(f"a text of more than {MOST_TEXT} letters")
                pieces.append(piece)
        except Exception as error:  # templates run into whatever Python raises
            raise ArgumentError(
                f"the chat template cannot take these messages: {str(error)[:200]}",
                hint="look at the roles: most templates want user and assistant in turns",
            ) from None
        return "".join(pieces)


def _said() -> Any:
    """The tag `generation`, with which templates mark what the model says: it changes no text."""
    nodes = importlib.import_module("jinja2.nodes")
    extension: Any = importlib.import_module("jinja2.ext").Extension

    class Said(extension):  # type: ignore[misc]
        tags = frozenset(["generation"])

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    return Said


def _sandboxed(base: Any) -> Any:
    """An environment of the sandbox whose ranges and products are limited."""

    class Limited(base):  # type: ignore[misc]
        intercepted_binops = frozenset(["*", "**", "%"])
        steps = 0

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            """Products of texts and large powers are what fills memory."""
            if operator == "**" or (operator == "%" and isinstance(left, str)):
                raise OverflowError(f"{operator} is not for templates")
            texts = [len(x) for x in (left, right) if isinstance(x, (str, list, tuple))]
            counts = [x for x in (left, right) if isinstance(x, int)]
            if texts and counts and texts[0] * max(counts) > MOST_TEXT:
                raise OverflowError("a product that is too long")
            return super().call_binop(context, operator, left, right)

    environment = Limited(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _said()]
    )

    def counted(*bounds: int) -> Any:
        found = range(*bounds)
        environment.steps += len(found)
        if environment.steps > MOST_STEPS:
            raise OverflowError(f"loops of more than {MOST_STEPS} steps")
        return found

    def refuse(message: str) -> None:
        raise ValueError(message)

    def as_json(value: Any, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment.globals.update(
        range=counted,
        raise_exception=refuse,
        strftime_now=lambda form: datetime.now().strftime(form),
    )
    environment.globals.pop("lipsum", None)
    environment.filters["tojson"] = as_json
    return environment
