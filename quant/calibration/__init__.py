"""Calibration: what goes into the layers of a model while it runs on samples."""
