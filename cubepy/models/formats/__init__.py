"""Readers of model files: what a file says of itself, and its tensors as views of the mapped
bytes. A file comes from anywhere, so that everything in it is checked before it is used.
"""
