"""The kernel library, with the types of its results.

Made by `scripts/library_stub.py` from the functions' signatures: change those, not this file.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np

from cubepy.kernels.convolution.cpu.filters import PackedFilter as PackedFilter
from cubepy.kernels.matmul.prepack import Packed as Packed
from cubepy.kernels.primitives import functions as functions
from cubepy.kernels.random.distributions import Generator as Generator
from cubepy.lang import views as views
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.tensor.array import Tensor
from cubepy.tune.explain import Explanation

class Function:
    """A function of the library."""

    __name__: str
    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """What a call with these arguments would do: routines, launches, share of the limit."""

Host: TypeAlias = np.ndarray[Any, Any] | Sequence[Any] | float

__all__ = [
    "Generator",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool1d_input",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_input",
    "adaptive_avg_pool3d",
    "adaptive_avg_pool3d_input",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_input",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_input",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_input",
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "attention",
    "attention_forward",
    "attention_gradients",
    "avg_pool1d",
    "avg_pool1d_input",
    "avg_pool2d",
    "avg_pool2d_input",
    "avg_pool3d",
    "avg_pool3d_input",
    "batch_norm",
    "bernoulli",
    "concat",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_input",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_weight",
    "copy",
    "cumprod",
    "cumsum",
    "embedding",
    "flip",
    "functions",
    "gather",
    "gelu",
    "group_norm",
    "gru",
    "index_put",
    "interpolate",
    "interpolate_input",
    "layer_norm",
    "log_softmax",
    "logsumexp",
    "lstm",
    "manual_seed",
    "map",
    "matmul",
    "max",
    "max_pool1d",
    "max_pool1d_input",
    "max_pool2d",
    "max_pool2d_input",
    "max_pool3d",
    "max_pool3d_input",
    "mean",
    "min",
    "norm",
    "normal",
    "pad",
    "prepack",
    "prepack_filter",
    "prod",
    "randint",
    "rms_norm",
    "rnn",
    "scatter",
    "select",
    "softmax",
    "sort",
    "std",
    "sum",
    "take_along_axis",
    "topk",
    "transpose",
    "uniform",
    "var",
    "views",
]

class _adaptive_avg_pool1d(Function):
    @overload
    def __call__(
        self, input: Tensor, output_size: Any, *, layout: str = 'NCL', out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, output_size: Any, *, layout: str = 'NCL', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, output_size: Any, *, layout: str = 'NCL', out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, output_size: Any, *, layout: str = 'NCL', out: Any = None
    ) -> Any: ...

adaptive_avg_pool1d: _adaptive_avg_pool1d
"""Means of equal parts, as `torch.nn.functional.adaptive_avg_pool1d`."""

class _adaptive_avg_pool1d_input(Function):
    @overload
    def __call__(self, input_size: Any, grad_output: Tensor, *, layout: str = 'NCL') -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, *, layout: str = 'NCL'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, *, layout: str = 'NCL'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, input_size: Any, grad_output: Any, *, layout: str = 'NCL') -> Any: ...

adaptive_avg_pool1d_input: _adaptive_avg_pool1d_input
"""The gradient of `adaptive_avg_pool1d` by its input of shape `input_size`."""

class _adaptive_avg_pool2d(Function):
    @overload
    def __call__(
        self, input: Tensor, output_size: Any, *, layout: str = 'NCHW', out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, output_size: Any, *, layout: str = 'NCHW', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, output_size: Any, *, layout: str = 'NCHW', out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, output_size: Any, *, layout: str = 'NCHW', out: Any = None
    ) -> Any: ...

adaptive_avg_pool2d: _adaptive_avg_pool2d
"""Means of equal parts, as `torch.nn.functional.adaptive_avg_pool2d`."""

class _adaptive_avg_pool2d_input(Function):
    @overload
    def __call__(self, input_size: Any, grad_output: Tensor, *, layout: str = 'NCHW') -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, *, layout: str = 'NCHW'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, *, layout: str = 'NCHW'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, input_size: Any, grad_output: Any, *, layout: str = 'NCHW') -> Any: ...

adaptive_avg_pool2d_input: _adaptive_avg_pool2d_input
"""The gradient of `adaptive_avg_pool2d` by its input of shape `input_size`."""

class _adaptive_avg_pool3d(Function):
    @overload
    def __call__(
        self, input: Tensor, output_size: Any, *, layout: str = 'NCDHW', out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, output_size: Any, *, layout: str = 'NCDHW', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, output_size: Any, *, layout: str = 'NCDHW', out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, output_size: Any, *, layout: str = 'NCDHW', out: Any = None
    ) -> Any: ...

adaptive_avg_pool3d: _adaptive_avg_pool3d
"""Means of equal parts, as `torch.nn.functional.adaptive_avg_pool3d`."""

class _adaptive_avg_pool3d_input(Function):
    @overload
    def __call__(
        self, input_size: Any, grad_output: Tensor, *, layout: str = 'NCDHW'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, *, layout: str = 'NCDHW'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, *, layout: str = 'NCDHW'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, input_size: Any, grad_output: Any, *, layout: str = 'NCDHW') -> Any: ...

adaptive_avg_pool3d_input: _adaptive_avg_pool3d_input
"""The gradient of `adaptive_avg_pool3d` by its input of shape `input_size`."""

class _adaptive_max_pool1d(Function):
    @overload
    def __call__(
        self, input: Tensor, output_size: Any, return_indices: Literal[False] = False, *, layout:
        str = 'NCL', out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, output_size: Any, return_indices: Literal[False] = False, *,
        layout: str = 'NCL', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, output_size: Any, return_indices: Literal[False] = False, *, layout: str
        = 'NCL', out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, output_size: Any, return_indices: bool = False, *, layout: str = 'NCL',
        out: Any = None
    ) -> Any: ...

adaptive_max_pool1d: _adaptive_max_pool1d
"""Largest values of `output_size` equal parts, as torch's."""

class _adaptive_max_pool1d_input(Function):
    @overload
    def __call__(
        self, input_size: Any, grad_output: Tensor, indices: Any, *, layout: str = 'NCL'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, indices: Any, *, layout: str = 'NCL'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, indices: Any, *, layout: str = 'NCL'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Any, indices: Any, *, layout: str = 'NCL'
    ) -> Any: ...

adaptive_max_pool1d_input: _adaptive_max_pool1d_input
"""The gradient of `adaptive_max_pool1d` by its input of shape `input_size`."""

class _adaptive_max_pool2d(Function):
    @overload
    def __call__(
        self, input: Tensor, output_size: Any, return_indices: Literal[False] = False, *, layout:
        str = 'NCHW', out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, output_size: Any, return_indices: Literal[False] = False, *,
        layout: str = 'NCHW', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, output_size: Any, return_indices: Literal[False] = False, *, layout: str
        = 'NCHW', out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, output_size: Any, return_indices: bool = False, *, layout: str = 'NCHW',
        out: Any = None
    ) -> Any: ...

adaptive_max_pool2d: _adaptive_max_pool2d
"""Largest values of `output_size` equal parts, as torch's."""

class _adaptive_max_pool2d_input(Function):
    @overload
    def __call__(
        self, input_size: Any, grad_output: Tensor, indices: Any, *, layout: str = 'NCHW'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, indices: Any, *, layout: str = 'NCHW'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, indices: Any, *, layout: str = 'NCHW'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Any, indices: Any, *, layout: str = 'NCHW'
    ) -> Any: ...

adaptive_max_pool2d_input: _adaptive_max_pool2d_input
"""The gradient of `adaptive_max_pool2d` by its input of shape `input_size`."""

class _adaptive_max_pool3d(Function):
    @overload
    def __call__(
        self, input: Tensor, output_size: Any, return_indices: Literal[False] = False, *, layout:
        str = 'NCDHW', out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, output_size: Any, return_indices: Literal[False] = False, *,
        layout: str = 'NCDHW', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, output_size: Any, return_indices: Literal[False] = False, *, layout: str
        = 'NCDHW', out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, output_size: Any, return_indices: bool = False, *, layout: str = 'NCDHW',
        out: Any = None
    ) -> Any: ...

adaptive_max_pool3d: _adaptive_max_pool3d
"""Largest values of `output_size` equal parts, as torch's."""

class _adaptive_max_pool3d_input(Function):
    @overload
    def __call__(
        self, input_size: Any, grad_output: Tensor, indices: Any, *, layout: str = 'NCDHW'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, indices: Any, *, layout: str = 'NCDHW'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, indices: Any, *, layout: str = 'NCDHW'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Any, indices: Any, *, layout: str = 'NCDHW'
    ) -> Any: ...

adaptive_max_pool3d_input: _adaptive_max_pool3d_input
"""The gradient of `adaptive_max_pool3d` by its input of shape `input_size`."""

class _all(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

all: _all
"""Whether no element is zero, as `numpy.all`."""

class _any(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

any: _any
"""Whether some element is not zero, as `numpy.any`: NaN is not zero, of no elements none is."""

class _argmax(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

argmax: _argmax
"""Index of the largest element (i64): the first of equals, the first NaN if any, as
`numpy.argmax`."""

class _argmin(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

argmin: _argmin
"""Index of the smallest element (i64), as `numpy.argmin`."""

class _argsort(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = -1, descending: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = -1, descending: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Host, axis: Any = -1, descending: bool = False, *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = -1, descending: bool = False, *, out: Any = None
    ) -> Any: ...

argsort: _argsort
"""The indices (i64) that sort an axis, as `numpy.argsort(x, axis, stable=True)`: equal
elements keep their order."""

class _attention(Function):
    @overload
    def __call__(
        self, query: Tensor, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False,
        scale: float | None = None, *, enable_gqa: bool = False, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, query: DeviceArray, key: Any, value: Any, attn_mask: Any = None, is_causal: bool =
        False, scale: float | None = None, *, enable_gqa: bool = False, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, query: Host, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False,
        scale: float | None = None, *, enable_gqa: bool = False, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False,
        scale: float | None = None, *, enable_gqa: bool = False, out: Any = None
    ) -> Any: ...

attention: _attention
"""softmax(scale * query @ key.T + mask) @ value, as
`torch.nn.functional.scaled_dot_product_attention`."""

class _attention_forward(Function):
    @overload
    def __call__(
        self, query: Tensor, key: Any, value: Any, is_causal: bool = False, scale: float | None =
        None, attn_mask: Any = None
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(
        self, query: DeviceArray, key: Any, value: Any, is_causal: bool = False, scale: float | None
        = None, attn_mask: Any = None
    ) -> tuple[DeviceArray, DeviceArray]: ...
    @overload
    def __call__(
        self, query: Host, key: Any, value: Any, is_causal: bool = False, scale: float | None =
        None, attn_mask: Any = None
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]: ...
    @overload
    def __call__(
        self, query: Any, key: Any, value: Any, is_causal: bool = False, scale: float | None = None,
        attn_mask: Any = None
    ) -> tuple[Any, Any]: ...

attention_forward: _attention_forward
"""The attention, and the log-sum-exp of each row of scores, which the gradients need."""

class _attention_gradients(Function):
    @overload
    def __call__(
        self, grad: Any, query: Tensor, key: Any, value: Any, result: Any, lse: Any, is_causal: bool
        = False, scale: float | None = None, attn_mask: Any = None
    ) -> tuple[Tensor, Tensor, Tensor]: ...
    @overload
    def __call__(
        self, grad: Any, query: DeviceArray, key: Any, value: Any, result: Any, lse: Any, is_causal:
        bool = False, scale: float | None = None, attn_mask: Any = None
    ) -> tuple[DeviceArray, DeviceArray, DeviceArray]: ...
    @overload
    def __call__(
        self, grad: Any, query: Host, key: Any, value: Any, result: Any, lse: Any, is_causal: bool =
        False, scale: float | None = None, attn_mask: Any = None
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]: ...
    @overload
    def __call__(
        self, grad: Any, query: Any, key: Any, value: Any, result: Any, lse: Any, is_causal: bool =
        False, scale: float | None = None, attn_mask: Any = None
    ) -> tuple[Any, Any, Any]: ...

attention_gradients: _attention_gradients
"""The gradients of `attention_forward` by query, key and value."""

class _avg_pool1d(Function):
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool
        = False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str =
        'NCL', out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode:
        bool = False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str =
        'NCL', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool =
        False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCL',
        out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool =
        False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCL',
        out: Any = None
    ) -> Any: ...

avg_pool1d: _avg_pool1d
"""Mean of every window, as `torch.nn.functional.avg_pool1d`."""

class _avg_pool1d_input(Function):
    @overload
    def __call__(
        self, input_size: Any, grad_output: Tensor, kernel_size: Any, stride: Any = None, padding:
        Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any =
        None, *, layout: str = 'NCL'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, kernel_size: Any, stride: Any = None,
        padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override:
        Any = None, *, layout: str = 'NCL'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, kernel_size: Any, stride: Any = None, padding: Any
        = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
        *, layout: str = 'NCL'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Any, kernel_size: Any, stride: Any = None, padding: Any
        = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
        *, layout: str = 'NCL'
    ) -> Any: ...

avg_pool1d_input: _avg_pool1d_input
"""The gradient of `avg_pool1d` by its input of shape `input_size`."""

class _avg_pool2d(Function):
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool
        = False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str =
        'NCHW', out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode:
        bool = False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str =
        'NCHW', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool =
        False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str =
        'NCHW', out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool =
        False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str =
        'NCHW', out: Any = None
    ) -> Any: ...

avg_pool2d: _avg_pool2d
"""Mean of every window, as `torch.nn.functional.avg_pool2d`."""

class _avg_pool2d_input(Function):
    @overload
    def __call__(
        self, input_size: Any, grad_output: Tensor, kernel_size: Any, stride: Any = None, padding:
        Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any =
        None, *, layout: str = 'NCHW'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, kernel_size: Any, stride: Any = None,
        padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override:
        Any = None, *, layout: str = 'NCHW'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, kernel_size: Any, stride: Any = None, padding: Any
        = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
        *, layout: str = 'NCHW'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Any, kernel_size: Any, stride: Any = None, padding: Any
        = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
        *, layout: str = 'NCHW'
    ) -> Any: ...

avg_pool2d_input: _avg_pool2d_input
"""The gradient of `avg_pool2d` by its input of shape `input_size`."""

class _avg_pool3d(Function):
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool
        = False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str =
        'NCDHW', out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode:
        bool = False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str =
        'NCDHW', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool =
        False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str =
        'NCDHW', out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool =
        False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str =
        'NCDHW', out: Any = None
    ) -> Any: ...

avg_pool3d: _avg_pool3d
"""Mean of every window, as `torch.nn.functional.avg_pool3d`."""

class _avg_pool3d_input(Function):
    @overload
    def __call__(
        self, input_size: Any, grad_output: Tensor, kernel_size: Any, stride: Any = None, padding:
        Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any =
        None, *, layout: str = 'NCDHW'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, kernel_size: Any, stride: Any = None,
        padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override:
        Any = None, *, layout: str = 'NCDHW'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, kernel_size: Any, stride: Any = None, padding: Any
        = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
        *, layout: str = 'NCDHW'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Any, kernel_size: Any, stride: Any = None, padding: Any
        = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
        *, layout: str = 'NCDHW'
    ) -> Any: ...

avg_pool3d_input: _avg_pool3d_input
"""The gradient of `avg_pool3d` by its input of shape `input_size`."""

class _batch_norm(Function):
    @overload
    def __call__(
        self, input: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any =
        None, training: bool = False, momentum: float = 0.1, eps: float = 1e-05, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, running_mean: Any, running_var: Any, weight: Any = None, bias: Any
        = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-05, *, out: Any =
        None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, running_mean: Any, running_var: Any, weight: Any = None, bias: Any =
        None, training: bool = False, momentum: float = 0.1, eps: float = 1e-05, *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
        training: bool = False, momentum: float = 0.1, eps: float = 1e-05, *, out: Any = None
    ) -> Any: ...

batch_norm: _batch_norm
"""Normalise each channel over a batch (Ioffe and Szegedy, 2015), as
`torch.nn.functional.batch_norm`."""

class _bernoulli(Function):
    @overload
    def __call__(
        self, input: Tensor, size: Any = None, *, generator: Generator | None = None, out: Any =
        None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, size: Any = None, *, generator: Generator | None = None, out: Any
        = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, size: Any = None, *, generator: Generator | None = None, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, size: Any = None, *, generator: Generator | None = None, out: Any = None
    ) -> Any: ...

bernoulli: _bernoulli
"""Ones with the given probability, zeros otherwise, as `torch.bernoulli`."""

class _concat(Function):
    @overload
    def __call__(self, arrays: Sequence[Tensor], axis: int = 0, *, out: Any = None) -> Tensor: ...
    @overload
    def __call__(
        self, arrays: Sequence[DeviceArray], axis: int = 0, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, arrays: Sequence[Host], axis: int = 0, *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, arrays: Any, axis: int = 0, *, out: Any = None) -> Any: ...

concat: _concat
"""Arrays joined along an axis, as `numpy.concatenate` and `torch.concat`."""

class _conv1d(Function):
    @overload
    def __call__(
        self, input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCL', activation: Any = None, add: Any
        = None, precision: str | None = None, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCL', activation: Any = None, add: Any
        = None, precision: str | None = None, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCL', activation: Any = None, add: Any
        = None, precision: str | None = None, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCL', activation: Any = None, add: Any
        = None, precision: str | None = None, out: Any = None
    ) -> Any: ...

conv1d: _conv1d
"""Convolution over 1 axis, as `torch.nn.functional.conv1d`."""

class _conv2d(Function):
    @overload
    def __call__(
        self, input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCHW', activation: Any = None, add:
        Any = None, precision: str | None = None, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCHW', activation: Any = None, add:
        Any = None, precision: str | None = None, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCHW', activation: Any = None, add:
        Any = None, precision: str | None = None, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCHW', activation: Any = None, add:
        Any = None, precision: str | None = None, out: Any = None
    ) -> Any: ...

conv2d: _conv2d
"""Convolution over 2 axes, as `torch.nn.functional.conv2d`."""

class _conv3d(Function):
    @overload
    def __call__(
        self, input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCDHW', activation: Any = None, add:
        Any = None, precision: str | None = None, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCDHW', activation: Any = None, add:
        Any = None, precision: str | None = None, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCDHW', activation: Any = None, add:
        Any = None, precision: str | None = None, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, *, layout: str = 'NCDHW', activation: Any = None, add:
        Any = None, precision: str | None = None, out: Any = None
    ) -> Any: ...

conv3d: _conv3d
"""Convolution over 3 axes, as `torch.nn.functional.conv3d`."""

class _conv_input(Function):
    @overload
    def __call__(
        self, input_size: tuple[int, ...], weight: Any, grad_output: Tensor, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: tuple[int, ...], weight: Any, grad_output: DeviceArray, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: tuple[int, ...], weight: Any, grad_output: Host, stride: Any = 1, padding:
        Any = 0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: tuple[int, ...], weight: Any, grad_output: Any, stride: Any = 1, padding:
        Any = 0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
    ) -> Any: ...

conv_input: _conv_input
"""The gradient of a convolution by its input, as `torch.nn.grad.conv2d_input` (in 1 to 3 axes,
channels first)."""

class _conv_transpose1d(Function):
    @overload
    def __call__(
        self, input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCL',
        precision: str | None = None, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCL',
        precision: str | None = None, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCL',
        precision: str | None = None, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCL',
        precision: str | None = None, out: Any = None
    ) -> Any: ...

conv_transpose1d: _conv_transpose1d
"""Transposed convolution over 1 axis, as `torch.nn.functional.conv_transpose1d`."""

class _conv_transpose2d(Function):
    @overload
    def __call__(
        self, input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCHW',
        precision: str | None = None, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCHW',
        precision: str | None = None, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCHW',
        precision: str | None = None, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCHW',
        precision: str | None = None, out: Any = None
    ) -> Any: ...

conv_transpose2d: _conv_transpose2d
"""Transposed convolution over 2 axes, as `torch.nn.functional.conv_transpose2d`."""

class _conv_transpose3d(Function):
    @overload
    def __call__(
        self, input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCDHW',
        precision: str | None = None, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCDHW',
        precision: str | None = None, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCDHW',
        precision: str | None = None, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCDHW',
        precision: str | None = None, out: Any = None
    ) -> Any: ...

conv_transpose3d: _conv_transpose3d
"""Transposed convolution over 3 axes, as `torch.nn.functional.conv_transpose3d`."""

class _conv_weight(Function):
    @overload
    def __call__(
        self, input: Any, weight_size: tuple[int, ...], grad_output: Tensor, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: Any, weight_size: tuple[int, ...], grad_output: DeviceArray, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Any, weight_size: tuple[int, ...], grad_output: Host, stride: Any = 1, padding:
        Any = 0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, weight_size: tuple[int, ...], grad_output: Any, stride: Any = 1, padding:
        Any = 0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
    ) -> Any: ...

conv_weight: _conv_weight
"""The gradient of a convolution by its filters, as `torch.nn.grad.conv2d_weight` (in 1 to 3
axes, channels first)."""

class _copy(Function):
    @overload
    def __call__(self, x: Tensor, *, out: Any = None) -> Tensor: ...
    @overload
    def __call__(self, x: DeviceArray, *, out: Any = None) -> DeviceArray: ...
    @overload
    def __call__(self, x: Host, *, out: Any = None) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, x: Any, *, out: Any = None) -> Any: ...

copy: _copy
"""A contiguous copy of an array."""

class _cumprod(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, *, exclusive: bool = False, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, *, exclusive: bool = False, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Host, axis: Any = None, *, exclusive: bool = False, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, *, exclusive: bool = False, out: Any = None
    ) -> Any: ...

cumprod: _cumprod
"""Running products along an axis, as `numpy.cumprod`; `exclusive` starts with 1."""

class _cumsum(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, *, exclusive: bool = False, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, *, exclusive: bool = False, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Host, axis: Any = None, *, exclusive: bool = False, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, *, exclusive: bool = False, out: Any = None
    ) -> Any: ...

cumsum: _cumsum
"""Running sums along an axis, as `numpy.cumsum`; small integers sum in 64 bits."""

class _embedding(Function):
    @overload
    def __call__(self, input: Tensor, weight: Any, *, out: Any = None) -> Tensor: ...
    @overload
    def __call__(self, input: DeviceArray, weight: Any, *, out: Any = None) -> DeviceArray: ...
    @overload
    def __call__(self, input: Host, weight: Any, *, out: Any = None) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, input: Any, weight: Any, *, out: Any = None) -> Any: ...

embedding: _embedding
"""Rows of a table: `weight[input]`, as `torch.nn.functional.embedding`."""

class _flip(Function):
    @overload
    def __call__(self, x: Tensor, axis: Any = None, *, out: Any = None) -> Tensor: ...
    @overload
    def __call__(self, x: DeviceArray, axis: Any = None, *, out: Any = None) -> DeviceArray: ...
    @overload
    def __call__(self, x: Host, axis: Any = None, *, out: Any = None) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, x: Any, axis: Any = None, *, out: Any = None) -> Any: ...

flip: _flip
"""A copy with axes reversed (all by default), as `numpy.flip` and `torch.flip`."""

class _gather(Function):
    @overload
    def __call__(self, input: Tensor, axis: int, index: Any, *, out: Any = None) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, axis: int, index: Any, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, axis: int, index: Any, *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, input: Any, axis: int, index: Any, *, out: Any = None) -> Any: ...

gather: _gather
"""out[i, j, ...] = input[index[i, j, ...], j, ...] (for axis 0), as `torch.gather`."""

class _gelu(Function):
    @overload
    def __call__(self, x: Tensor, approximate: str = 'none', *, out: Any = None) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, approximate: str = 'none', *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Host, approximate: str = 'none', *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, x: Any, approximate: str = 'none', *, out: Any = None) -> Any: ...

gelu: _gelu
"""Gaussian error linear unit, as `torch.nn.functional.gelu`."""

class _group_norm(Function):
    @overload
    def __call__(
        self, input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float =
        1e-05, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, num_groups: int, weight: Any = None, bias: Any = None, eps: float
        = 1e-05, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, num_groups: int, weight: Any = None, bias: Any = None, eps: float =
        1e-05, *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05,
        *, out: Any = None
    ) -> Any: ...

group_norm: _group_norm
"""Normalise groups of channels of every image (Wu and He, 2018), as
`torch.nn.functional.group_norm`."""

class _gru(Function):
    @overload
    def __call__(
        self, x: Tensor, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any = None, *,
        lengths: Any = None, reverse: bool = False
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(
        self, x: DeviceArray, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any =
        None, *, lengths: Any = None, reverse: bool = False
    ) -> tuple[DeviceArray, DeviceArray]: ...
    @overload
    def __call__(
        self, x: Host, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any = None, *,
        lengths: Any = None, reverse: bool = False
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]: ...
    @overload
    def __call__(
        self, x: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any = None, *,
        lengths: Any = None, reverse: bool = False
    ) -> tuple[Any, Any]: ...

gru: _gru
"""Gated recurrent units along a sequence (Cho et al., 2014); h' = (1 - z) n + z h, where the
reset gate weighs the product of states in n."""

class _index_put(Function):
    @overload
    def __call__(
        self, input: Tensor, indices: Any, values: Any, update: str = 'assign', *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, indices: Any, values: Any, update: str = 'assign', *, out: Any =
        None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, indices: Any, values: Any, update: str = 'assign', *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, indices: Any, values: Any, update: str = 'assign', *, out: Any = None
    ) -> Any: ...

index_put: _index_put
"""A copy of `input` where the positions `input[indices]` are updated with `values`, as
`torch.index_put`."""

class _interpolate(Function):
    @overload
    def __call__(
        self, input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = 'nearest',
        align_corners: bool | None = False, *, antialias: bool = False, layout: str = 'NCHW', out:
        Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, size: Any = None, scale_factor: Any = None, mode: str = 'nearest',
        align_corners: bool | None = False, *, antialias: bool = False, layout: str = 'NCHW', out:
        Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, size: Any = None, scale_factor: Any = None, mode: str = 'nearest',
        align_corners: bool | None = False, *, antialias: bool = False, layout: str = 'NCHW', out:
        Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, size: Any = None, scale_factor: Any = None, mode: str = 'nearest',
        align_corners: bool | None = False, *, antialias: bool = False, layout: str = 'NCHW', out:
        Any = None
    ) -> Any: ...

interpolate: _interpolate
"""Images, signals or volumes of another size, as `torch.nn.functional.interpolate`."""

class _interpolate_input(Function):
    @overload
    def __call__(
        self, input_size: tuple[int, ...], grad_output: Tensor, mode: str = 'nearest',
        align_corners: bool = False, *, scale_factor: Any = None, antialias: bool = False, layout:
        str = 'NCHW'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: tuple[int, ...], grad_output: DeviceArray, mode: str = 'nearest',
        align_corners: bool = False, *, scale_factor: Any = None, antialias: bool = False, layout:
        str = 'NCHW'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: tuple[int, ...], grad_output: Host, mode: str = 'nearest', align_corners:
        bool = False, *, scale_factor: Any = None, antialias: bool = False, layout: str = 'NCHW'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: tuple[int, ...], grad_output: Any, mode: str = 'nearest', align_corners:
        bool = False, *, scale_factor: Any = None, antialias: bool = False, layout: str = 'NCHW'
    ) -> Any: ...

interpolate_input: _interpolate_input
"""The gradient of `interpolate` by its input of shape `input_size`."""

class _layer_norm(Function):
    @overload
    def __call__(
        self, x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float =
        1e-05, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, normalized_shape: Any, weight: Any = None, bias: Any = None, eps:
        float = 1e-05, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Host, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float =
        1e-05, *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float =
        1e-05, *, out: Any = None
    ) -> Any: ...

layer_norm: _layer_norm
"""Normalise over the last axes to mean 0 and variance 1, then scale and shift (Ba et al.,
2016)."""

class _log_softmax(Function):
    @overload
    def __call__(self, x: Tensor, axis: int = -1, *, out: Any = None) -> Tensor: ...
    @overload
    def __call__(self, x: DeviceArray, axis: int = -1, *, out: Any = None) -> DeviceArray: ...
    @overload
    def __call__(self, x: Host, axis: int = -1, *, out: Any = None) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, x: Any, axis: int = -1, *, out: Any = None) -> Any: ...

log_softmax: _log_softmax
"""x - log(sum(exp(x))) along an axis, from the maximum down, as
`torch.nn.functional.log_softmax`."""

class _logsumexp(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

logsumexp: _logsumexp
"""log(sum(exp(x))) over axes, from the maximum down, as `torch.logsumexp`."""

class _lstm(Function):
    @overload
    def __call__(
        self, x: Tensor, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any = None, c:
        Any = None, *, lengths: Any = None, reverse: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]: ...
    @overload
    def __call__(
        self, x: DeviceArray, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any =
        None, c: Any = None, *, lengths: Any = None, reverse: bool = False
    ) -> tuple[DeviceArray, DeviceArray, DeviceArray]: ...
    @overload
    def __call__(
        self, x: Host, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any = None, c:
        Any = None, *, lengths: Any = None, reverse: bool = False
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]: ...
    @overload
    def __call__(
        self, x: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any = None, c:
        Any = None, *, lengths: Any = None, reverse: bool = False
    ) -> tuple[Any, Any, Any]: ...

lstm: _lstm
"""Long short-term memory along a sequence (Hochreiter and Schmidhuber, 1997), in one or both
directions: c' = f c + i n and h' = o tanh(c')."""

class _manual_seed(Function):
    def __call__(self, seed: int) -> Generator: ...

manual_seed: _manual_seed
"""Seed the generator that is used where none is named, and return it."""

class _map(Function):
    @overload
    def __call__(
        self, function: Any, *arrays: Tensor, out: Any = None, dtype: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, function: Any, *arrays: DeviceArray, out: Any = None, dtype: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, function: Any, *arrays: Host, out: Any = None, dtype: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, function: Any, *arrays: Any, out: Any = None, dtype: Any = None) -> Any: ...

map: _map
"""Apply a function to every element of broadcast arrays, in one pass."""

class _matmul(Function):
    @overload
    def __call__(
        self, a: Tensor, b: Any, *, bias: Any = None, activation: Any = None, residual: Any = None,
        add: Any = None, gate: Any = None, mask: Any = None, fill: float = 0.0, alpha: float = 1.0,
        out: Any = None, dtype: Any = None, precision: str | None = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, a: DeviceArray, b: Any, *, bias: Any = None, activation: Any = None, residual: Any =
        None, add: Any = None, gate: Any = None, mask: Any = None, fill: float = 0.0, alpha: float =
        1.0, out: Any = None, dtype: Any = None, precision: str | None = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, a: Host, b: Any, *, bias: Any = None, activation: Any = None, residual: Any = None,
        add: Any = None, gate: Any = None, mask: Any = None, fill: float = 0.0, alpha: float = 1.0,
        out: Any = None, dtype: Any = None, precision: str | None = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, a: Any, b: Any, *, bias: Any = None, activation: Any = None, residual: Any = None,
        add: Any = None, gate: Any = None, mask: Any = None, fill: float = 0.0, alpha: float = 1.0,
        out: Any = None, dtype: Any = None, precision: str | None = None
    ) -> Any: ...

matmul: _matmul
"""Matrix product with broadcast batch axes: `activation(alpha * a @ b + bias) + residual`,
where a mask allows it."""

class _max(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

max: _max
"""Largest element over axes; NaN where there is one, as `numpy.max`."""

class _max_pool1d(Function):
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any =
        1, ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCL',
        out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation:
        Any = 1, ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str =
        'NCL', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any =
        1, ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCL',
        out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False, *, layout: str = 'NCL', out: Any =
        None
    ) -> Any: ...

max_pool1d: _max_pool1d
"""Largest value of every window, as `torch.nn.functional.max_pool1d`."""

class _max_pool1d_input(Function):
    @overload
    def __call__(
        self, input_size: Any, grad_output: Tensor, indices: Any, kernel_size: Any, stride: Any =
        None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCL'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, indices: Any, kernel_size: Any, stride: Any
        = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCL'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, indices: Any, kernel_size: Any, stride: Any =
        None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCL'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Any, indices: Any, kernel_size: Any, stride: Any = None,
        padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCL'
    ) -> Any: ...

max_pool1d_input: _max_pool1d_input
"""The gradient of `max_pool1d` by its input of shape `input_size`."""

class _max_pool2d(Function):
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any =
        1, ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCHW',
        out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation:
        Any = 1, ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str =
        'NCHW', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any =
        1, ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCHW',
        out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False, *, layout: str = 'NCHW', out: Any =
        None
    ) -> Any: ...

max_pool2d: _max_pool2d
"""Largest value of every window, as `torch.nn.functional.max_pool2d`."""

class _max_pool2d_input(Function):
    @overload
    def __call__(
        self, input_size: Any, grad_output: Tensor, indices: Any, kernel_size: Any, stride: Any =
        None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCHW'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, indices: Any, kernel_size: Any, stride: Any
        = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str =
        'NCHW'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, indices: Any, kernel_size: Any, stride: Any =
        None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCHW'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Any, indices: Any, kernel_size: Any, stride: Any = None,
        padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCHW'
    ) -> Any: ...

max_pool2d_input: _max_pool2d_input
"""The gradient of `max_pool2d` by its input of shape `input_size`."""

class _max_pool3d(Function):
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any =
        1, ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str =
        'NCDHW', out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation:
        Any = 1, ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str =
        'NCDHW', out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any =
        1, ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str =
        'NCDHW', out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False, *, layout: str = 'NCDHW', out: Any =
        None
    ) -> Any: ...

max_pool3d: _max_pool3d
"""Largest value of every window, as `torch.nn.functional.max_pool3d`."""

class _max_pool3d_input(Function):
    @overload
    def __call__(
        self, input_size: Any, grad_output: Tensor, indices: Any, kernel_size: Any, stride: Any =
        None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCDHW'
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: DeviceArray, indices: Any, kernel_size: Any, stride: Any
        = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str =
        'NCDHW'
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Host, indices: Any, kernel_size: Any, stride: Any =
        None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCDHW'
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input_size: Any, grad_output: Any, indices: Any, kernel_size: Any, stride: Any = None,
        padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCDHW'
    ) -> Any: ...

max_pool3d_input: _max_pool3d_input
"""The gradient of `max_pool3d` by its input of shape `input_size`."""

class _mean(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

mean: _mean
"""Arithmetic mean over axes; integers give f32 (f64 for 64-bit ones)."""

class _min(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

min: _min
"""Smallest element over axes; NaN where there is one, as `numpy.min`."""

class _norm(Function):
    @overload
    def __call__(
        self, x: Tensor, ord: float = 2, axis: Any = None, keepdims: bool = False, *, out: Any =
        None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, ord: float = 2, axis: Any = None, keepdims: bool = False, *, out: Any
        = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, ord: float = 2, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

norm: _norm
"""The vector norm (sum |x|^ord)^(1/ord) over axes, as `numpy.linalg.vector_norm`."""

class _normal(Function):
    @overload
    def __call__(
        self, mean: float = 0.0, std: float = 1.0, size: Any = None, *, generator: Generator | None
        = None, dtype: Any = ..., device: None = None, out: None = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, mean: float = 0.0, std: float = 1.0, size: Any = None, *, generator: Generator | None
        = None, dtype: Any = ..., device: Any = None, out: Any = None
    ) -> Any: ...

normal: _normal
"""Floats of the normal distribution, as `torch.normal` and `numpy.random.normal`."""

class _pad(Function):
    @overload
    def __call__(
        self, input: Tensor, pad: Any, mode: str = 'constant', value: float = 0, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, pad: Any, mode: str = 'constant', value: float = 0, *, out: Any =
        None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, pad: Any, mode: str = 'constant', value: float = 0, *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, pad: Any, mode: str = 'constant', value: float = 0, *, out: Any = None
    ) -> Any: ...

pad: _pad
"""Elements added at the ends of axes, as `torch.nn.functional.pad`."""

class _prepack(Function):
    def __call__(self, b: Any) -> Packed: ...

prepack: _prepack
"""Lay a constant matrix out once, so that later products need not; it takes as much memory as
the matrix in f32."""

class _prepack_filter(Function):
    def __call__(self, weight: Any, groups: int = 1) -> PackedFilter: ...

prepack_filter: _prepack_filter
"""Lay constant filters out once, so that later convolutions on the CPU need not."""

class _prod(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

prod: _prod
"""Product over axes, as `numpy.prod`."""

class _randint(Function):
    @overload
    def __call__(
        self, low: int, high: int | None = None, size: Any = None, *, generator: Generator | None =
        None, dtype: Any = ..., device: None = None, out: None = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, low: int, high: int | None = None, size: Any = None, *, generator: Generator | None =
        None, dtype: Any = ..., device: Any = None, out: Any = None
    ) -> Any: ...

randint: _randint
"""Integers of [low, high), all as likely as each other, as `numpy.random.randint` and
`torch.randint`."""

class _rms_norm(Function):
    @overload
    def __call__(
        self, input: Tensor, normalized_shape: Any, weight: Any = None, eps: float | None = None, *,
        out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, normalized_shape: Any, weight: Any = None, eps: float | None =
        None, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, normalized_shape: Any, weight: Any = None, eps: float | None = None, *,
        out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None, *,
        out: Any = None
    ) -> Any: ...

rms_norm: _rms_norm
"""x / sqrt(mean(x^2) + eps) * weight over the last axes (Zhang and Sennrich, 2019), as torch's
`rms_norm`."""

class _rnn(Function):
    @overload
    def __call__(
        self, x: Tensor, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any = None, *,
        nonlinearity: str = 'tanh', lengths: Any = None, reverse: bool = False
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(
        self, x: DeviceArray, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any =
        None, *, nonlinearity: str = 'tanh', lengths: Any = None, reverse: bool = False
    ) -> tuple[DeviceArray, DeviceArray]: ...
    @overload
    def __call__(
        self, x: Host, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any = None, *,
        nonlinearity: str = 'tanh', lengths: Any = None, reverse: bool = False
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]: ...
    @overload
    def __call__(
        self, x: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, h: Any = None, *,
        nonlinearity: str = 'tanh', lengths: Any = None, reverse: bool = False
    ) -> tuple[Any, Any]: ...

rnn: _rnn
"""h' = tanh(W x + b + V h + c) along a sequence (Elman, 1990)."""

class _scatter(Function):
    @overload
    def __call__(
        self, input: Tensor, axis: int, index: Any, src: Any, update: str = 'assign', *, out: Any =
        None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, axis: int, index: Any, src: Any, update: str = 'assign', *, out:
        Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, axis: int, index: Any, src: Any, update: str = 'assign', *, out: Any =
        None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, input: Any, axis: int, index: Any, src: Any, update: str = 'assign', *, out: Any =
        None
    ) -> Any: ...

scatter: _scatter
"""A copy of `input` where position index[i, j, ...] along an axis is updated with src[i, j,
...], as `torch.scatter`."""

class _select(Function):
    @overload
    def __call__(self, input: Tensor, axis: int, index: Any, *, out: Any = None) -> Tensor: ...
    @overload
    def __call__(
        self, input: DeviceArray, axis: int, index: Any, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, input: Host, axis: int, index: Any, *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, input: Any, axis: int, index: Any, *, out: Any = None) -> Any: ...

select: _select
"""Whole slices at the positions of a list of indices, as `torch.index_select`."""

class _softmax(Function):
    @overload
    def __call__(self, x: Tensor, axis: int = -1, *, out: Any = None) -> Tensor: ...
    @overload
    def __call__(self, x: DeviceArray, axis: int = -1, *, out: Any = None) -> DeviceArray: ...
    @overload
    def __call__(self, x: Host, axis: int = -1, *, out: Any = None) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, x: Any, axis: int = -1, *, out: Any = None) -> Any: ...

softmax: _softmax
"""exp(x) / sum(exp(x)) along an axis, computed from the maximum down so that it cannot
overflow."""

class _sort(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = -1, descending: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = -1, descending: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Host, axis: Any = -1, descending: bool = False, *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = -1, descending: bool = False, *, out: Any = None
    ) -> Any: ...

sort: _sort
"""The elements in order along an axis, as `numpy.sort`: NaN last (first when descending)."""

class _std(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any =
        None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

std: _std
"""Standard deviation over axes, as `numpy.std`."""

class _sum(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

sum: _sum
"""Sum over axes (all by default), as `numpy.sum`; small integers sum in 64 bits."""

class _take_along_axis(Function):
    @overload
    def __call__(
        self, x: Tensor, indices: Any, axis: int | None = -1, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, indices: Any, axis: int | None = -1, *, out: Any = None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Host, indices: Any, axis: int | None = -1, *, out: Any = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, x: Any, indices: Any, axis: int | None = -1, *, out: Any = None) -> Any: ...

take_along_axis: _take_along_axis
"""Elements at indices along an axis, as `numpy.take_along_axis`: the other axes broadcast,
negative indices count from the end."""

class _topk(Function):
    @overload
    def __call__(
        self, input: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(
        self, input: DeviceArray, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
    ) -> tuple[DeviceArray, DeviceArray]: ...
    @overload
    def __call__(
        self, input: Host, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]: ...
    @overload
    def __call__(
        self, input: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
    ) -> tuple[Any, Any]: ...

topk: _topk
"""The k largest (or smallest) elements along an axis and their indices, as `torch.topk`."""

class _transpose(Function):
    @overload
    def __call__(self, x: Tensor, axes: Any = None, *, out: Any = None) -> Tensor: ...
    @overload
    def __call__(self, x: DeviceArray, axes: Any = None, *, out: Any = None) -> DeviceArray: ...
    @overload
    def __call__(self, x: Host, axes: Any = None, *, out: Any = None) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, x: Any, axes: Any = None, *, out: Any = None) -> Any: ...

transpose: _transpose
"""A contiguous copy with the axes permuted (reversed by default), as `numpy.transpose(x,
axes).copy()`."""

class _uniform(Function):
    @overload
    def __call__(
        self, low: float = 0.0, high: float = 1.0, size: Any = None, *, generator: Generator | None
        = None, dtype: Any = ..., device: None = None, out: None = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(
        self, low: float = 0.0, high: float = 1.0, size: Any = None, *, generator: Generator | None
        = None, dtype: Any = ..., device: Any = None, out: Any = None
    ) -> Any: ...

uniform: _uniform
"""Floats spread evenly over [low, high), as `numpy.random.uniform`; rounding may give `high`,
as there."""

class _var(Function):
    @overload
    def __call__(
        self, x: Tensor, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: DeviceArray, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any =
        None
    ) -> DeviceArray: ...
    @overload
    def __call__(
        self, x: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None
    ) -> Any: ...

var: _var
"""Variance over axes (all by default), as `numpy.var`, from the differences to the mean."""

