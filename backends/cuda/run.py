"""Launches on NVIDIA's GPUs: with clusters, overlap and tensor maps where a program has them."""

from __future__ import annotations

import math
from typing import Any

from cubepy.backends.cuda.native.module import Wish, check_clusters, launch_config
from cubepy.backends.cuda.native.tensor_maps import encoded
from cubepy.backends.gpu.run import GpuRunner
from cubepy.lang.grid import Dim3
from cubepy.runtime.symbolic.number import plain


class CudaRunner(GpuRunner):
    """A launch; its executable has `cluster` (None or three numbers), and `overlap` (whether it may
    begin before the launch before it has ended).
    """

    def configuration(self, cubes: Dim3) -> Any:
        exe = self.exe
        cluster = None if exe.cluster is None or math.prod(exe.cluster) == 1 else tuple(exe.cluster)
        if cluster is not None:
            check_clusters(cubes, cluster, exe.program.name)
        if cluster is None and not exe.overlap:
            return None
        wish = Wish(cluster=cluster, overlap=exe.overlap)
        return launch_config(tuple(map(plain, cubes)), exe.units, exe.shared_bytes, wish)

    @staticmethod
    def encoded(value: Any) -> bytes:
        return encoded(value)
