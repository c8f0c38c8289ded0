class _C:
    cache_dir="/tmp/cbcache"; backend="cpu"; num_threads=0; mode="checked"; debug=0; cache=True; memory_limit=0; serial_elements=16384; deterministic=False; progress=True
config=_C()
