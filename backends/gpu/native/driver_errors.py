"""What error codes of GPUs' drivers mean, as typed exceptions: HIP's numbers are CUDA's."""

from __future__ import annotations

from cubepy.errors import BackendCompileError, CubeError, DeviceError, LaunchError, OutOfMemoryError

OUT_OF_MEMORY = 2
NO_DEVICE = 100
WRONG_CONTEXT = frozenset({201, 400, 709})
NOT_READY = 600

STICKY = {
    214: "the memory of the device had an error that cannot be corrected (ECC)",
    220: "the link between devices failed (NVLink)",
    700: "a kernel read or wrote memory that does not belong to it",
    702: "a kernel ran longer than the system allows",
    710: "an assertion inside a kernel failed",
    714: "a kernel broke the hardware's call stack",
    715: "a kernel executed an instruction that the device does not know",
    716: "a kernel made a misaligned access",
    717: "a kernel used an address of the wrong memory space",
    718: "a kernel jumped to an address that holds no code",
    719: "a kernel failed",
}
CAPTURE = range(900, 910)

FATAL_HINT = (
    "nothing on this device works in this process any more: start a new process. "
    "CUBEPY_MODE=validate names the access"
)


def failure(
    code: int, name: str, text: str, what: str, device: str = "", tools: str = ""
) -> CubeError:
    """The exception for a driver's error code.

    Args:
        code: what the driver returned, not 0.
        name, text: its name and description, as the driver gives them.
        what: what was being done, such as "launching axpy".
        device: such as "cuda:1", when known.
        tools: what names the instruction that failed.

    Example:
        >>> type(failure(2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory",
        ...     "allocating 8 bytes")).__name__
        'OutOfMemoryError'
    """
    said = f"{what}: {name} ({code}), {text}"
    if device:
        said += f", on {device}"
    if code == OUT_OF_MEMORY:
        return OutOfMemoryError(said, hint="release arrays, or work in smaller batches")
    if code in STICKY:
        return DeviceError(f"{STICKY[code]} ({said})", hint=FATAL_HINT + (tools and f"; {tools}"))
    if code == 701:
        return LaunchError(
            said,
            hint="the cube needs more registers or shared memory than there are: use fewer units",
        )
    if code in CAPTURE:
        return LaunchError(
            said,
            hint="inside cb.capture() nothing may wait for the device, read results, or "
            "allocate with the driver",
        )
    if code in (200, 209, 218, 222):
        return BackendCompileError(
            said, hint="the code was made for another architecture, or for a newer driver"
        )
    return DeviceError(said)
