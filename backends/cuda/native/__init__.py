"""NVIDIA's driver: its functions, launches by configuration, tensor maps."""
