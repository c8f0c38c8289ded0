"""What models that read texts share: a tokenizer that is made when the first text comes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from cubepy.errors import ArgumentError


class Tokenized:
    """A model with a tokenizer, or without one."""

    def give_tokenizer(self, made_by: Callable[[], Any]) -> None:
        """Say what makes the tokenizer when the first text comes."""
        self.__dict__["_made_by"] = made_by
        self.__dict__.pop("tokenizer", None)

    @cached_property
    def tokenizer(self) -> Any:
        """Texts to tokens and back; None where the model came without one."""
        made_by = self.__dict__.get("_made_by")
        return None if made_by is None else made_by()

    def needed_tokenizer(self) -> Any:
        """The tokenizer.

        Raises:
            ArgumentError: the model came without one.
        """
        if self.tokenizer is None:
            raise ArgumentError(
                "the model has no tokenizer",
                hint="give tokens, or load a folder with tokenizer.json",
            )
        return self.tokenizer
