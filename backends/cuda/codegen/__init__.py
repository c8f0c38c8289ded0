"""From a program to a cubin: printing, lowering, linking, disassembly."""
