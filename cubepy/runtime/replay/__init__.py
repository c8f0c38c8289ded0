"""Record once, replay: calls that came before run again without Python's deliberations."""
