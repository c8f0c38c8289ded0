"""Products on a CPU, in the words of BLIS: macrokernel, microkernel, packing."""
