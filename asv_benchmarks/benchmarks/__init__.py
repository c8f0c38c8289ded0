"""The asv suite: cases.py builds work for a library, the bench_ modules time it.

What NumPy, torch and the C library decide when they are loaded or start a thread is set here, before that.
"""

import ctypes
import os
import sys

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")  # idle threads turn for 1 ms, not 0.1 s beside the next library
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of processes beside what is timed

if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
    # glibc's M_ARENA_MAX: a thread with an arena of its own gives every large buffer back to the system, and fetching
    # new pages made JAX up to 13 times slower than it is
    ctypes.CDLL(None).mallopt(-8, 1)
