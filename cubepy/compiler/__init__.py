"""Understanding a kernel: its Python source becomes typed statements, with everything comptime
folded.

`specialise` (specialise.py) walks the function and all that it calls, infers a dtype for every
value, prunes and unrolls, and gives a `Program` (ir.py). Backends print a program as code; they
never see the user's source.
"""
