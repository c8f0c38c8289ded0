"""cubepy.nn."""

if not __name__.startswith("cubepy."):
    raise ImportError("import cubepy.nn: the bare folder name would load every class a second time")
