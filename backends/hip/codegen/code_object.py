"""A loadable code object from LLVM's object file, without a linker.

What HIP loads is a shared ELF library with descriptors of kernels among what is read. A kernel
needs nothing from elsewhere, so its only relocation is that of its descriptor, which says how far
away the code is, and those of the code to its own tables.

Layout: "User Guide for AMDGPU Backend" (LLVM), sections Code Object and ELF Code Object.
"""

from __future__ import annotations

from cubepy.backends.gpu.codegen.shared_library import Layout, Machine

REL32, REL64, REL32_LOW, REL32_HIGH = 4, 5, 10, 11
AMD_GPU = Machine(224, {REL64: (0, 8), REL32: (0, 4), REL32_LOW: (0, 4), REL32_HIGH: (32, 4)})


def loadable(relocatable: bytes) -> bytes:
    """The code object that HIP loads, from LLVM's object file.

    Raises:
        BackendCompileError: the object needs something from elsewhere.
    """
    return Layout(relocatable, AMD_GPU).file()
