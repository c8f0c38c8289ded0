"""cubepy.quant."""

if not __name__.startswith("cubepy."):
    raise ImportError("import cubepy.quant: the bare folder name would load every class a second time")
