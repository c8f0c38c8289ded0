"""Tuned results on disk: a file for each key, in a folder for each package version and device.

A file for each key needs no lock between processes that tune different keys: a file appears whole,
by renaming, or not at all. An entry carries its own checksum; a damaged one counts as absent and is
written anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cubepy.config import config
from cubepy.errors import CacheWarning, TuneError
from cubepy.runtime import cache
from cubepy.runtime.device import GPUS, device_properties
from cubepy.tune.decision import Decision

FORMAT = 1


def version() -> str:
    """The package version that entries belong to."""
    import cubepy

    return cubepy.__version__


def fingerprint(device: Any) -> str:
    """What a measurement on a device holds for: its name, and on the CPU the number of threads."""
    p = device_properties(device)
    threads = f" {config.num_threads or p.cores} threads" if p.backend not in GPUS else ""
    return f"{p.backend} {p.name}{' ' + p.architecture if p.architecture else ''}{threads}"


def seal(body: Any) -> str:
    """Data as text, with a checksum of itself."""
    text = json.dumps(body, sort_keys=True)
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"format": FORMAT, "checksum": checksum, "body": body}, indent=1)


def unseal(text: str | bytes) -> Any:
    """The data of a sealed text.

    Raises:
        TuneError: it is damaged, or of another format.
    """
    try:
        outer = json.loads(text)
        form, checksum, body = outer["format"], outer["checksum"], outer["body"]
        damaged = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest() != checksum
    except (
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ):  # bytes of another encoding are a ValueError
        form, damaged = FORMAT, True
    if form != FORMAT:
        raise TuneError(f"the tuned table has format {form!r}; this version reads {FORMAT}")
    if damaged:
        raise TuneError(
            "the tuned table is damaged: its checksum does not match", hint="make it again"
        )
    return body


class Table:
    """The results for one device.

    Args:
        device: such as "cpu" or "cuda:0".
    """

    def __init__(self, device: Any) -> None:
        self.device = fingerprint(device)

    @property
    def folder(self) -> Path:
        """Where the entries are."""
        return cache.directory() / "tune" / version() / re.sub(r"[^\w.]+", "-", self.device)

    def path(self, op: str, key: str) -> Path:
        """The file of one key."""
        return (
            self.folder / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', op)}-{cache.digest(op, key)[:20]}.json"
        )

    def read(self, op: str, key: str) -> Decision | None:
        """The entry of a key, or None when there is none that is whole."""
        found = self._load(self.path(op, key))
        return found if found is not None and (found.op, found.key) == (op, key) else None

    def _load(self, path: Path) -> Decision | None:
        if not config.cache:
            return None
        try:
            return Decision.from_dict(unseal(path.read_bytes())["decision"])
        except (OSError, TuneError, KeyError, TypeError):
            return None

    def write(self, decision: Decision) -> None:
        """Keep a decision; a folder that cannot be written costs a warning."""
        if not config.cache:
            return
        body = {"device": self.device, "cubepy": version(), "decision": decision.as_dict()}
        try:
            cache.write_atomically(self.path(decision.op, decision.key), seal(body).encode())
        except OSError as error:
            warnings.warn(
                f"tuned results cannot be kept in {self.folder} ({error})",
                CacheWarning,
                stacklevel=cache.asked_level(),
            )

    def __iter__(self) -> Iterator[Decision]:
        for path in sorted(self.folder.glob("*-*.json")):
            found = self._load(path)
            if found is not None:
                yield found

    def clear(self, op: str | None = None) -> int:
        """Delete the entries of an operation, or all; gives how many."""
        count = 0
        for path in list(self.folder.glob("*-*.json")):
            found = self._load(path)
            if op is None or (found is not None and found.op == op):
                with contextlib.suppress(OSError):
                    path.unlink()
                    count += 1
        return count


def export_table(path: Any, device: Any = "cpu") -> int:
    """Write all tuned results of a device into one file, to be shipped with a program.

    Returns:
        How many results.

    Raises:
        TuneError: there is none.
    """
    table = Table(device)
    entries = [d.as_dict() for d in table]
    if not entries:
        raise TuneError(f"nothing is tuned for {table.device}", hint="python -m cubepy tune OP")
    body = {"device": table.device, "cubepy": version(), "decisions": entries}
    cache.write_atomically(Path(path), seal(body).encode())
    return len(entries)


def import_table(path: Any, device: Any = "cpu", *, any_device: bool = False) -> int:
    """Take the results of a file that `export_table` wrote; better ones that are here already are
    kept.

    A result is used only while its candidates are those of this installation, so a file cannot make
    a kernel wrong.

    Args:
        path: the file.
        device: the device to use the results for.
        any_device: take results that were measured on a device of another name.

    Returns:
        How many results were taken.

    Raises:
        TuneError: the file is damaged, or of another device or package version.
    """
    body = unseal(Path(path).read_bytes())
    table = Table(device)
    try:
        source, made_by, decisions = (
            body["device"],
            body["cubepy"],
            [Decision.from_dict(d) for d in body["decisions"]],
        )
    except (KeyError, TypeError):
        raise TuneError(
            f"{path} is not an exported table", hint="python -m cubepy tune --export FILE"
        ) from None
    if made_by != version():
        raise TuneError(
            f"{path} was made by cubepy {made_by}, this is {version()}",
            hint="tune again and export",
        )
    if source != table.device and not any_device:
        raise TuneError(
            f"{path} was measured on {source!r}, this device is {table.device!r}",
            hint="pass any_device=True (--any-device) if its choices are good here too",
        )
    taken = 0
    for decision in decisions:
        present = table.read(decision.op, decision.key)
        if present is None or present.level != "full" or decision.level == "full":
            table.write(decision)
            taken += 1
    return taken
