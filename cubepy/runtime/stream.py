"""Streams: queues of launches. On the CPU a launch is finished when it returns, so order is trivially kept."""

from __future__ import annotations

from typing import Any

from cubepy.errors import LaunchError
from cubepy.runtime.device import as_device, current


class Stream:
    """An in-order queue of launches on one device.

    Example:
        >>> s = Stream()
        >>> s.sync()
    """

    def __init__(self, device: Any = None) -> None:
        self.device = current() if device is None else as_device(device)

    def attach(self, device: Any) -> None:
        """Check that a launch on `device` may use this stream.

        Raises:
            LaunchError: the launch is on another device.
        """
        where = current() if device is None else as_device(device)
        if where != self.device:
            raise LaunchError(
                f"a stream of {self.device} cannot take a launch on {where}", hint=f"pass device={str(self.device)!r}"
            )

    def sync(self) -> None:
        """Wait until every launch of the stream is finished; errors of launches surface here."""


def sync(device: Any = None) -> None:
    """Wait until every launch on a device is finished (the current device by default).

    Launches on the CPU are finished when they return; the call is there so that code runs anywhere.
    """
    if device is not None:
        as_device(device)
