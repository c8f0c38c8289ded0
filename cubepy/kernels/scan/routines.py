"""The routines of scans, in order of preference."""

from __future__ import annotations

from cubepy.kernels.scan.columns import Columns
from cubepy.kernels.scan.columns_gpu import ChainedColumns
from cubepy.kernels.scan.scan_cpu import Rows
from cubepy.kernels.scan.scan_gpu import ChainedRows, HeldRows
from cubepy.tune import Op

SCAN = Op("scan", [HeldRows(), ChainedRows(), ChainedColumns(), Rows(), Columns()])
