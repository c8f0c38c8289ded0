"""AMD's driver: its functions, and where they differ from NVIDIA's."""
