"""From a program to a cubin: printing, lowering by numba-cuda, linking, disassembly."""
