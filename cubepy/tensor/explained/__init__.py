"""What a program does, shown: its steps, kernels and memory, and why they are what they are."""
