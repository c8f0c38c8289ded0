"""Modules and functions of tensors as ONNX files."""
