"""Random calls of every public function against references in float64: see
`scripts/fuzz_library.py`.
"""
