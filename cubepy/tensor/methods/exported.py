"""Tensors given to other libraries: as arrays of NumPy, through DLPack, to kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import DeviceError, GradientError
from cubepy.runtime.device import gpu_of
from cubepy.tensor.exposed import expose
from cubepy.tensor.modes import mode
from cubepy.tensor.record import blocks, refuse_unrecorded
from cubepy.tensor.value import Handle


class Exported(Handle):
    """What `Tensor` inherits: the protocols by which others read its elements."""

    __slots__ = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if gpu_of(self.device) is not None:
            raise DeviceError(
                f"a tensor on {self.device} does not turn into a NumPy array by itself",
                hint="copy it to the host with x.numpy()",
            )
        if blocks:
            refuse_unrecorded()
        array = self.storage.dense()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(
                    f"an array of {np.dtype(dtype)} needs a copy of this tensor of "
                    f"{self.dtype.name}"
                )
            return array.astype(dtype)
        if copy:
            return array.copy()
        expose(array)
        return array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device.backend != "cuda":
            raise AttributeError("__cuda_array_interface__")
        array = self.storage.dense()
        expose(array)
        return array.__cuda_array_interface__  # type: ignore[no-any-return]

    def __cubepy_array__(self) -> Any:
        if blocks:
            refuse_unrecorded()
        if self.value.needs_grad and mode.enabled:
            raise GradientError(
                "a tensor that needs a gradient is given to a kernel or function that is no op: "
                "what it makes would have none",
                hint="give x.detach(), call it within `with cb.no_grad():`, or say what its "
                "gradient is with cb.custom_vjp",
            )
        array = self.storage.dense()
        expose(array)
        return array

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        said = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        options = {name: value for name, value in said.items() if value is not None}
        return self.__cubepy_array__().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.storage.dense().__dlpack_device__()
