"""cubepy.backends."""

if not __name__.startswith("cubepy."):
    raise ImportError(
        "import cubepy.backends: the bare folder name would load every class a second time"
    )
