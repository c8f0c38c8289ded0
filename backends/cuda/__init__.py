"""The CUDA backend: generated Python, compiled to a cubin, launched through the driver.

The journey of a program: emit.py prints it, target.py and lowering.py lower it and have NVIDIA's
libraries compile it, compile.py keeps the result on disk; what loads it, lays launches out and puts
them on streams is that of every GPU (backends.gpu).
"""

from __future__ import annotations

from cubepy.backends.cuda.backend import CudaBackend
from cubepy.runtime.device import DeviceProperties

pretended: DeviceProperties | None = None
"""The GPU that a process compiles for without having it (see `ahead`); set before first use."""


def create() -> CudaBackend:
    """The backend object."""
    if pretended is None:
        return CudaBackend()
    from cubepy.backends.cuda.ahead import AheadBackend

    return AheadBackend(pretended)
