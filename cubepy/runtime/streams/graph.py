"""Graphs: a block's launches recorded once and replayed as one, at the cost of one launch."""

from __future__ import annotations

from typing import Any

from cubepy.errors import DeviceError, LaunchError
from cubepy.runtime.device import GPUS, as_device, backend_named, current, gpu_of
from cubepy.runtime.interop.arrays import array_like
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.streams.stream import Stream


class capture:
    """Record the launches of a `with` block on a GPU instead of running them; `replay` runs them
    all.

    Whatever the block launches or computes with tensors of the device becomes part of the graph;
    its results have their memory for good, and each replay writes them again; `put` writes new
    inputs into the arrays that the block read. What the host does (reading elements, Python
    branches) happens only once, or is refused.

    Args:
        device: a GPU; by default the current device, or the first GPU when that has none.

    Attributes:
        nodes: how many pieces of work the graph has.
        kernels: how many of them are kernels.

    Raises:
        DeviceError: there is no GPU.
        LaunchError: elements are read inside the block, or captures nest.

    Example:
        >>> import numpy as np, cubepy as cb  # with an NVIDIA GPU
        >>> x = cb.tensor(np.ones(3, np.float32), device="cuda")
        >>> with cb.capture("cuda") as graph:
        ...     y = x + x
        >>> graph.put(x, [1, 2, 3])
        >>> graph.replay()
        >>> print(y.numpy())
        [2. 4. 6.]
    """

    def __init__(self, device: Any = None) -> None:
        where = current() if device is None else as_device(device)
        gpu = gpu_of(where)
        there = (name for name in GPUS if backend_named(name).count())
        if gpu is None and device is None and (name := next(there, None)):
            where = as_device(name)
            gpu = gpu_of(where)
        if gpu is None:
            raise DeviceError(
                f"graphs are captured on a GPU; the current device is {where}",
                hint="launches on the CPU have little overhead; use kernel[grid].bind(...), or "
                'cb.capture("cuda")',
            )
        self.device = where
        self._recording: Any = gpu.capture(where.ordinal)
        self._graph: Any = None

    def __enter__(self) -> capture:
        if self._recording is None:
            raise LaunchError("a graph is captured once", hint="make another one with cb.capture()")
        self._recording.begin()
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        recording, self._recording = self._recording, None
        self._graph = recording.end(kind is not None)

    def replay(self, stream: Stream | None = None) -> None:
        """Run the recorded work on a stream (the thread's own by default); does not wait for it.

        Raises:
            LaunchError: nothing was captured.
        """
        if self._graph is None:
            raise LaunchError(
                "there is nothing to replay", hint="launch inside the with block first"
            )
        gpu = gpu_of(self.device)
        self._graph.launch(
            gpu.thread_stream(self.device.ordinal) if stream is None else stream.native
        )

    def put(self, target: Any, value: Any) -> None:
        """Write new elements into an array or tensor that the graph reads, before the next replay.

        Args:
            target: a tensor or array on the graph's device.
            value: an array of the host or of the device, a tensor, or a number; it is broadcast and
                converted.

        Raises:
            ShapeError: the value does not fit.
        """
        target_array, new = (
            array_like(v) if array_like(v) is not None else v for v in (target, value)
        )
        if not isinstance(target_array, DeviceArray):
            raise LaunchError(
                f"a graph on {self.device} reads no array of the host",
                hint="give the tensor on the GPU",
            )
        target_array[...] = new

    @property
    def nodes(self) -> int:
        """How many pieces of work the graph has."""
        return 0 if self._graph is None else int(self._graph.nodes)

    @property
    def kernels(self) -> int:
        """How many kernels the graph has."""
        return 0 if self._graph is None else int(self._graph.kernels)
