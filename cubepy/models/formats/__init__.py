"""Readers of model files: what lies in them, checked, and without the libraries that wrote them."""
