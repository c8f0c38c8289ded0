"""What compiles for a GPU with LLVM alone: a code generator for numba, object files."""
