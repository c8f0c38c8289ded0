"""The routines of recurrences, in order of preference."""

from __future__ import annotations

from cubepy.kernels.recurrent.back_cpu import MeetingsBack
from cubepy.kernels.recurrent.clusters_back_gpu import ClustersBack
from cubepy.kernels.recurrent.clusters_gpu import Clusters
from cubepy.kernels.recurrent.products_gpu import Products, ProductsBack
from cubepy.kernels.recurrent.projected.back_cpu import MeetingsProjectedBack
from cubepy.kernels.recurrent.projected.steps_cpu import MeetingsProjected
from cubepy.kernels.recurrent.steps_cpu import Meetings
from cubepy.tune import Op

RECURRENCE = Op("recurrence", [Clusters(), Products(), Meetings()])
RECURRENCE_BACK = Op("recurrence_back", [ClustersBack(), ProductsBack(), MeetingsBack()])
PROJECTED_RECURRENCE = Op("projected_recurrence", [MeetingsProjected()])
PROJECTED_BACK = Op("projected_recurrence_back", [MeetingsProjectedBack()])
