"""From a program to a code object: printing, lowering by numba, LLVM's AMDGPU, packing."""
