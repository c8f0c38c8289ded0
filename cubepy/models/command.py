"""The commands `look`, `generate`, `chat` and `transcribe` of `python -m cubepy`."""

from __future__ import annotations

import argparse
import io
import sys
from typing import Any

from cubepy.errors import ArgumentError

NAMES = ("look", "generate", "chat", "transcribe")


def add_commands(commands: Any) -> None:
    """What may follow `python -m cubepy look`, `generate`, `chat` and `transcribe`."""
    look = commands.add_parser("look", help="what a model file or folder holds")
    look.add_argument("model")
    look.add_argument("--tensors", action="store_true", help="a line for each tensor")
    generate = commands.add_parser("generate", help="write on from a text")
    generate.add_argument("model", help="a GGUF file or a folder with config.json")
    generate.add_argument("prompt")
    chat = commands.add_parser("chat", help="talk with a model; an empty line ends it")
    chat.add_argument("model", help="a GGUF file or a folder with config.json")
    chat.add_argument("--system", default=None, help="what the model is told first")
    transcribe = commands.add_parser("transcribe", help="what was said in a WAV file")
    transcribe.add_argument("model", help="a folder of Whisper with config.json")
    transcribe.add_argument("file", help="WAV, integers of any width, rate and number of channels")
    transcribe.add_argument("--language", default=None, help="its code; the model says by default")
    transcribe.add_argument("--task", default="transcribe", help="or translate, to English")
    transcribe.add_argument("--beam-size", type=int, default=1, help="texts that are followed")
    transcribe.add_argument("--timestamps", action="store_true", help="a line for each segment")
    transcribe.add_argument("--device", default=None)
    for parser in (generate, chat):
        parser.add_argument("--max-new-tokens", type=int, default=256)
        parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token")
        parser.add_argument("--top-k", type=int, default=0)
        parser.add_argument("--top-p", type=float, default=1.0)
        parser.add_argument("--min-p", type=float, default=0.0)
        parser.add_argument("--repetition-penalty", type=float, default=1.0)
        parser.add_argument(
            "--stop", action="append", default=[], help="a text before which it ends"
        )
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--device", default=None)
        parser.add_argument(
            "--activations", default=None, help="of GGUF files: int8 (by default) or float"
        )


def run(arguments: argparse.Namespace) -> None:
    """Do what a command says."""
    from cubepy.models import load, look

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack letters that a model writes
    if arguments.command == "look":
        print(look(arguments.model).table(arguments.tensors))
        return
    if arguments.command == "transcribe":
        transcribed(load(arguments.model, arguments.device), arguments)
        return
    model = load(arguments.model, arguments.device, activations=arguments.activations)
    if not hasattr(model, "stream"):
        raise ArgumentError(f"{arguments.model} is no model that writes texts")
    if arguments.command == "generate":
        said(model, arguments.prompt, arguments)
    else:
        talk(model, arguments)


def transcribed(model: Any, arguments: argparse.Namespace) -> None:
    """Print what was said, segment by segment."""
    if not hasattr(model, "segments"):
        raise ArgumentError(f"{arguments.model} is no model that hears speech")
    options = {name: getattr(arguments, name) for name in ("language", "task", "beam_size")}
    for n, segment in enumerate(model.segments(arguments.file, **options)):
        if arguments.timestamps:
            print(segment, flush=True)
        else:
            print(segment.text if n else segment.text.lstrip(), end="", flush=True)
    if not arguments.timestamps:
        print()


def said(model: Any, prompt: Any, arguments: argparse.Namespace) -> str:
    """Print what comes, as it comes; gives it."""
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "stop", "seed")
    options = {name: getattr(arguments, name) for name in names}
    pieces = []
    for piece in model.stream(prompt, arguments.max_new_tokens, **options):
        print(piece, end="", flush=True)
        pieces.append(piece)
    print()
    return "".join(pieces)


def talk(model: Any, arguments: argparse.Namespace) -> None:
    """Read lines and answer each, with all that was said before."""
    messages: list[dict[str, str]] = []
    if arguments.system is not None:
        messages.append({"role": "system", "content": arguments.system})
    while True:
        print("> ", end="", flush=True)
        line = sys.stdin.readline().strip()
        if not line:
            print()
            return
        messages.append({"role": "user", "content": line})
        messages.append({"role": "assistant", "content": said(model, messages, arguments)})
