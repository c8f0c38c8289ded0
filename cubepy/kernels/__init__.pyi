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
    "index_put",
    "interpolate",
    "interpolate_input",
    "layer_norm",
    "log_softmax",
    "logsumexp",
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

@overload
def adaptive_avg_pool1d(
    input: Tensor, output_size: Any, *, layout: str = 'NCL', out: Any = None
) -> Tensor: ...
@overload
def adaptive_avg_pool1d(
    input: DeviceArray, output_size: Any, *, layout: str = 'NCL', out: Any = None
) -> DeviceArray: ...
@overload
def adaptive_avg_pool1d(
    input: Host, output_size: Any, *, layout: str = 'NCL', out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_avg_pool1d(
    input: Any, output_size: Any, *, layout: str = 'NCL', out: Any = None
) -> Any: ...
@overload
def adaptive_avg_pool1d_input(
    input_size: Any, grad_output: Tensor, *, layout: str = 'NCL'
) -> Tensor: ...
@overload
def adaptive_avg_pool1d_input(
    input_size: Any, grad_output: DeviceArray, *, layout: str = 'NCL'
) -> DeviceArray: ...
@overload
def adaptive_avg_pool1d_input(
    input_size: Any, grad_output: Host, *, layout: str = 'NCL'
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_avg_pool1d_input(input_size: Any, grad_output: Any, *, layout: str = 'NCL') -> Any: ...
@overload
def adaptive_avg_pool2d(
    input: Tensor, output_size: Any, *, layout: str = 'NCHW', out: Any = None
) -> Tensor: ...
@overload
def adaptive_avg_pool2d(
    input: DeviceArray, output_size: Any, *, layout: str = 'NCHW', out: Any = None
) -> DeviceArray: ...
@overload
def adaptive_avg_pool2d(
    input: Host, output_size: Any, *, layout: str = 'NCHW', out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_avg_pool2d(
    input: Any, output_size: Any, *, layout: str = 'NCHW', out: Any = None
) -> Any: ...
@overload
def adaptive_avg_pool2d_input(
    input_size: Any, grad_output: Tensor, *, layout: str = 'NCHW'
) -> Tensor: ...
@overload
def adaptive_avg_pool2d_input(
    input_size: Any, grad_output: DeviceArray, *, layout: str = 'NCHW'
) -> DeviceArray: ...
@overload
def adaptive_avg_pool2d_input(
    input_size: Any, grad_output: Host, *, layout: str = 'NCHW'
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_avg_pool2d_input(
    input_size: Any, grad_output: Any, *, layout: str = 'NCHW'
) -> Any: ...
@overload
def adaptive_avg_pool3d(
    input: Tensor, output_size: Any, *, layout: str = 'NCDHW', out: Any = None
) -> Tensor: ...
@overload
def adaptive_avg_pool3d(
    input: DeviceArray, output_size: Any, *, layout: str = 'NCDHW', out: Any = None
) -> DeviceArray: ...
@overload
def adaptive_avg_pool3d(
    input: Host, output_size: Any, *, layout: str = 'NCDHW', out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_avg_pool3d(
    input: Any, output_size: Any, *, layout: str = 'NCDHW', out: Any = None
) -> Any: ...
@overload
def adaptive_avg_pool3d_input(
    input_size: Any, grad_output: Tensor, *, layout: str = 'NCDHW'
) -> Tensor: ...
@overload
def adaptive_avg_pool3d_input(
    input_size: Any, grad_output: DeviceArray, *, layout: str = 'NCDHW'
) -> DeviceArray: ...
@overload
def adaptive_avg_pool3d_input(
    input_size: Any, grad_output: Host, *, layout: str = 'NCDHW'
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_avg_pool3d_input(
    input_size: Any, grad_output: Any, *, layout: str = 'NCDHW'
) -> Any: ...
@overload
def adaptive_max_pool1d(
    input: Tensor, output_size: Any, return_indices: Literal[False] = False, *, layout: str = 'NCL',
    out: Any = None
) -> Tensor: ...
@overload
def adaptive_max_pool1d(
    input: DeviceArray, output_size: Any, return_indices: Literal[False] = False, *, layout: str =
    'NCL', out: Any = None
) -> DeviceArray: ...
@overload
def adaptive_max_pool1d(
    input: Host, output_size: Any, return_indices: Literal[False] = False, *, layout: str = 'NCL',
    out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_max_pool1d(
    input: Any, output_size: Any, return_indices: bool = False, *, layout: str = 'NCL', out: Any =
    None
) -> Any: ...
@overload
def adaptive_max_pool1d_input(
    input_size: Any, grad_output: Tensor, indices: Any, *, layout: str = 'NCL'
) -> Tensor: ...
@overload
def adaptive_max_pool1d_input(
    input_size: Any, grad_output: DeviceArray, indices: Any, *, layout: str = 'NCL'
) -> DeviceArray: ...
@overload
def adaptive_max_pool1d_input(
    input_size: Any, grad_output: Host, indices: Any, *, layout: str = 'NCL'
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_max_pool1d_input(
    input_size: Any, grad_output: Any, indices: Any, *, layout: str = 'NCL'
) -> Any: ...
@overload
def adaptive_max_pool2d(
    input: Tensor, output_size: Any, return_indices: Literal[False] = False, *, layout: str =
    'NCHW', out: Any = None
) -> Tensor: ...
@overload
def adaptive_max_pool2d(
    input: DeviceArray, output_size: Any, return_indices: Literal[False] = False, *, layout: str =
    'NCHW', out: Any = None
) -> DeviceArray: ...
@overload
def adaptive_max_pool2d(
    input: Host, output_size: Any, return_indices: Literal[False] = False, *, layout: str = 'NCHW',
    out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_max_pool2d(
    input: Any, output_size: Any, return_indices: bool = False, *, layout: str = 'NCHW', out: Any =
    None
) -> Any: ...
@overload
def adaptive_max_pool2d_input(
    input_size: Any, grad_output: Tensor, indices: Any, *, layout: str = 'NCHW'
) -> Tensor: ...
@overload
def adaptive_max_pool2d_input(
    input_size: Any, grad_output: DeviceArray, indices: Any, *, layout: str = 'NCHW'
) -> DeviceArray: ...
@overload
def adaptive_max_pool2d_input(
    input_size: Any, grad_output: Host, indices: Any, *, layout: str = 'NCHW'
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_max_pool2d_input(
    input_size: Any, grad_output: Any, indices: Any, *, layout: str = 'NCHW'
) -> Any: ...
@overload
def adaptive_max_pool3d(
    input: Tensor, output_size: Any, return_indices: Literal[False] = False, *, layout: str =
    'NCDHW', out: Any = None
) -> Tensor: ...
@overload
def adaptive_max_pool3d(
    input: DeviceArray, output_size: Any, return_indices: Literal[False] = False, *, layout: str =
    'NCDHW', out: Any = None
) -> DeviceArray: ...
@overload
def adaptive_max_pool3d(
    input: Host, output_size: Any, return_indices: Literal[False] = False, *, layout: str = 'NCDHW',
    out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_max_pool3d(
    input: Any, output_size: Any, return_indices: bool = False, *, layout: str = 'NCDHW', out: Any =
    None
) -> Any: ...
@overload
def adaptive_max_pool3d_input(
    input_size: Any, grad_output: Tensor, indices: Any, *, layout: str = 'NCDHW'
) -> Tensor: ...
@overload
def adaptive_max_pool3d_input(
    input_size: Any, grad_output: DeviceArray, indices: Any, *, layout: str = 'NCDHW'
) -> DeviceArray: ...
@overload
def adaptive_max_pool3d_input(
    input_size: Any, grad_output: Host, indices: Any, *, layout: str = 'NCDHW'
) -> np.ndarray[Any, Any]: ...
@overload
def adaptive_max_pool3d_input(
    input_size: Any, grad_output: Any, indices: Any, *, layout: str = 'NCDHW'
) -> Any: ...
@overload
def all(x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def all(
    x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def all(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any: ...
@overload
def any(x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def any(
    x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def any(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any: ...
@overload
def argmax(x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def argmax(
    x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def argmax(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any: ...
@overload
def argmin(x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def argmin(
    x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def argmin(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any: ...
@overload
def argsort(x: Tensor, axis: Any = -1, descending: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def argsort(
    x: DeviceArray, axis: Any = -1, descending: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def argsort(
    x: Host, axis: Any = -1, descending: bool = False, *, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def argsort(x: Any, axis: Any = -1, descending: bool = False, *, out: Any = None) -> Any: ...
@overload
def attention(
    query: Tensor, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale:
    float | None = None, *, enable_gqa: bool = False, out: Any = None
) -> Tensor: ...
@overload
def attention(
    query: DeviceArray, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale:
    float | None = None, *, enable_gqa: bool = False, out: Any = None
) -> DeviceArray: ...
@overload
def attention(
    query: Host, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: float
    | None = None, *, enable_gqa: bool = False, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: float |
    None = None, *, enable_gqa: bool = False, out: Any = None
) -> Any: ...
@overload
def attention_forward(
    query: Tensor, key: Any, value: Any, is_causal: bool = False, scale: float | None = None,
    attn_mask: Any = None
) -> tuple[Tensor, Tensor]: ...
@overload
def attention_forward(
    query: DeviceArray, key: Any, value: Any, is_causal: bool = False, scale: float | None = None,
    attn_mask: Any = None
) -> tuple[DeviceArray, DeviceArray]: ...
@overload
def attention_forward(
    query: Host, key: Any, value: Any, is_causal: bool = False, scale: float | None = None,
    attn_mask: Any = None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]: ...
@overload
def attention_forward(
    query: Any, key: Any, value: Any, is_causal: bool = False, scale: float | None = None,
    attn_mask: Any = None
) -> tuple[Any, Any]: ...
@overload
def attention_gradients(
    grad: Any, query: Tensor, key: Any, value: Any, result: Any, lse: Any, is_causal: bool = False,
    scale: float | None = None, attn_mask: Any = None
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def attention_gradients(
    grad: Any, query: DeviceArray, key: Any, value: Any, result: Any, lse: Any, is_causal: bool =
    False, scale: float | None = None, attn_mask: Any = None
) -> tuple[DeviceArray, DeviceArray, DeviceArray]: ...
@overload
def attention_gradients(
    grad: Any, query: Host, key: Any, value: Any, result: Any, lse: Any, is_causal: bool = False,
    scale: float | None = None, attn_mask: Any = None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]: ...
@overload
def attention_gradients(
    grad: Any, query: Any, key: Any, value: Any, result: Any, lse: Any, is_causal: bool = False,
    scale: float | None = None, attn_mask: Any = None
) -> tuple[Any, Any, Any]: ...
@overload
def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCL', out: Any =
    None
) -> Tensor: ...
@overload
def avg_pool1d(
    input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool =
    False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCL',
    out: Any = None
) -> DeviceArray: ...
@overload
def avg_pool1d(
    input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCL', out: Any =
    None
) -> np.ndarray[Any, Any]: ...
@overload
def avg_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCL', out: Any =
    None
) -> Any: ...
@overload
def avg_pool1d_input(
    input_size: Any, grad_output: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCL'
) -> Tensor: ...
@overload
def avg_pool1d_input(
    input_size: Any, grad_output: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any =
    0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCL'
) -> DeviceArray: ...
@overload
def avg_pool1d_input(
    input_size: Any, grad_output: Host, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCL'
) -> np.ndarray[Any, Any]: ...
@overload
def avg_pool1d_input(
    input_size: Any, grad_output: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCL'
) -> Any: ...
@overload
def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCHW', out: Any
    = None
) -> Tensor: ...
@overload
def avg_pool2d(
    input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool =
    False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCHW',
    out: Any = None
) -> DeviceArray: ...
@overload
def avg_pool2d(
    input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCHW', out: Any
    = None
) -> np.ndarray[Any, Any]: ...
@overload
def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCHW', out: Any
    = None
) -> Any: ...
@overload
def avg_pool2d_input(
    input_size: Any, grad_output: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCHW'
) -> Tensor: ...
@overload
def avg_pool2d_input(
    input_size: Any, grad_output: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any =
    0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCHW'
) -> DeviceArray: ...
@overload
def avg_pool2d_input(
    input_size: Any, grad_output: Host, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCHW'
) -> np.ndarray[Any, Any]: ...
@overload
def avg_pool2d_input(
    input_size: Any, grad_output: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCHW'
) -> Any: ...
@overload
def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCDHW', out: Any
    = None
) -> Tensor: ...
@overload
def avg_pool3d(
    input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool =
    False, count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCDHW',
    out: Any = None
) -> DeviceArray: ...
@overload
def avg_pool3d(
    input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCDHW', out: Any
    = None
) -> np.ndarray[Any, Any]: ...
@overload
def avg_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None, *, layout: str = 'NCDHW', out: Any
    = None
) -> Any: ...
@overload
def avg_pool3d_input(
    input_size: Any, grad_output: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCDHW'
) -> Tensor: ...
@overload
def avg_pool3d_input(
    input_size: Any, grad_output: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any =
    0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCDHW'
) -> DeviceArray: ...
@overload
def avg_pool3d_input(
    input_size: Any, grad_output: Host, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCDHW'
) -> np.ndarray[Any, Any]: ...
@overload
def avg_pool3d_input(
    input_size: Any, grad_output: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None, *,
    layout: str = 'NCDHW'
) -> Any: ...
@overload
def batch_norm(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-05, *, out: Any = None
) -> Tensor: ...
@overload
def batch_norm(
    input: DeviceArray, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-05, *, out: Any = None
) -> DeviceArray: ...
@overload
def batch_norm(
    input: Host, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-05, *, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training:
    bool = False, momentum: float = 0.1, eps: float = 1e-05, *, out: Any = None
) -> Any: ...
@overload
def bernoulli(
    input: Tensor, size: Any = None, *, generator: Generator | None = None, out: Any = None
) -> Tensor: ...
@overload
def bernoulli(
    input: DeviceArray, size: Any = None, *, generator: Generator | None = None, out: Any = None
) -> DeviceArray: ...
@overload
def bernoulli(
    input: Host, size: Any = None, *, generator: Generator | None = None, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def bernoulli(
    input: Any, size: Any = None, *, generator: Generator | None = None, out: Any = None
) -> Any: ...
@overload
def concat(arrays: Sequence[Tensor], axis: int = 0, *, out: Any = None) -> Tensor: ...
@overload
def concat(arrays: Sequence[DeviceArray], axis: int = 0, *, out: Any = None) -> DeviceArray: ...
@overload
def concat(arrays: Sequence[Host], axis: int = 0, *, out: Any = None) -> np.ndarray[Any, Any]: ...
@overload
def concat(arrays: Any, axis: int = 0, *, out: Any = None) -> Any: ...
@overload
def conv1d(
    input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any =
    1, groups: int = 1, *, layout: str = 'NCL', activation: Any = None, add: Any = None, precision:
    str | None = None, out: Any = None
) -> Tensor: ...
@overload
def conv1d(
    input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation:
    Any = 1, groups: int = 1, *, layout: str = 'NCL', activation: Any = None, add: Any = None,
    precision: str | None = None, out: Any = None
) -> DeviceArray: ...
@overload
def conv1d(
    input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any =
    1, groups: int = 1, *, layout: str = 'NCL', activation: Any = None, add: Any = None, precision:
    str | None = None, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def conv1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, layout: str = 'NCL', activation: Any = None, add: Any = None, precision: str
    | None = None, out: Any = None
) -> Any: ...
@overload
def conv2d(
    input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any =
    1, groups: int = 1, *, layout: str = 'NCHW', activation: Any = None, add: Any = None, precision:
    str | None = None, out: Any = None
) -> Tensor: ...
@overload
def conv2d(
    input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation:
    Any = 1, groups: int = 1, *, layout: str = 'NCHW', activation: Any = None, add: Any = None,
    precision: str | None = None, out: Any = None
) -> DeviceArray: ...
@overload
def conv2d(
    input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any =
    1, groups: int = 1, *, layout: str = 'NCHW', activation: Any = None, add: Any = None, precision:
    str | None = None, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def conv2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, layout: str = 'NCHW', activation: Any = None, add: Any = None, precision:
    str | None = None, out: Any = None
) -> Any: ...
@overload
def conv3d(
    input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any =
    1, groups: int = 1, *, layout: str = 'NCDHW', activation: Any = None, add: Any = None,
    precision: str | None = None, out: Any = None
) -> Tensor: ...
@overload
def conv3d(
    input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation:
    Any = 1, groups: int = 1, *, layout: str = 'NCDHW', activation: Any = None, add: Any = None,
    precision: str | None = None, out: Any = None
) -> DeviceArray: ...
@overload
def conv3d(
    input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any =
    1, groups: int = 1, *, layout: str = 'NCDHW', activation: Any = None, add: Any = None,
    precision: str | None = None, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def conv3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, layout: str = 'NCDHW', activation: Any = None, add: Any = None, precision:
    str | None = None, out: Any = None
) -> Any: ...
@overload
def conv_input(
    input_size: tuple[int, ...], weight: Any, grad_output: Tensor, stride: Any = 1, padding: Any =
    0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
) -> Tensor: ...
@overload
def conv_input(
    input_size: tuple[int, ...], weight: Any, grad_output: DeviceArray, stride: Any = 1, padding:
    Any = 0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
) -> DeviceArray: ...
@overload
def conv_input(
    input_size: tuple[int, ...], weight: Any, grad_output: Host, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, *, precision: str | None = None
) -> np.ndarray[Any, Any]: ...
@overload
def conv_input(
    input_size: tuple[int, ...], weight: Any, grad_output: Any, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, *, precision: str | None = None
) -> Any: ...
@overload
def conv_transpose1d(
    input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding:
    Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCL', precision: str | None =
    None, out: Any = None
) -> Tensor: ...
@overload
def conv_transpose1d(
    input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCL', precision:
    str | None = None, out: Any = None
) -> DeviceArray: ...
@overload
def conv_transpose1d(
    input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding:
    Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCL', precision: str | None =
    None, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def conv_transpose1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding:
    Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCL', precision: str | None =
    None, out: Any = None
) -> Any: ...
@overload
def conv_transpose2d(
    input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding:
    Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCHW', precision: str | None =
    None, out: Any = None
) -> Tensor: ...
@overload
def conv_transpose2d(
    input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCHW', precision:
    str | None = None, out: Any = None
) -> DeviceArray: ...
@overload
def conv_transpose2d(
    input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding:
    Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCHW', precision: str | None =
    None, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def conv_transpose2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding:
    Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCHW', precision: str | None =
    None, out: Any = None
) -> Any: ...
@overload
def conv_transpose3d(
    input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding:
    Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCDHW', precision: str | None =
    None, out: Any = None
) -> Tensor: ...
@overload
def conv_transpose3d(
    input: DeviceArray, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCDHW',
    precision: str | None = None, out: Any = None
) -> DeviceArray: ...
@overload
def conv_transpose3d(
    input: Host, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding:
    Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCDHW', precision: str | None =
    None, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def conv_transpose3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding:
    Any = 0, groups: int = 1, dilation: Any = 1, *, layout: str = 'NCDHW', precision: str | None =
    None, out: Any = None
) -> Any: ...
@overload
def conv_weight(
    input: Any, weight_size: tuple[int, ...], grad_output: Tensor, stride: Any = 1, padding: Any =
    0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
) -> Tensor: ...
@overload
def conv_weight(
    input: Any, weight_size: tuple[int, ...], grad_output: DeviceArray, stride: Any = 1, padding:
    Any = 0, dilation: Any = 1, groups: int = 1, *, precision: str | None = None
) -> DeviceArray: ...
@overload
def conv_weight(
    input: Any, weight_size: tuple[int, ...], grad_output: Host, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, *, precision: str | None = None
) -> np.ndarray[Any, Any]: ...
@overload
def conv_weight(
    input: Any, weight_size: tuple[int, ...], grad_output: Any, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, *, precision: str | None = None
) -> Any: ...
@overload
def copy(x: Tensor, *, out: Any = None) -> Tensor: ...
@overload
def copy(x: DeviceArray, *, out: Any = None) -> DeviceArray: ...
@overload
def copy(x: Host, *, out: Any = None) -> np.ndarray[Any, Any]: ...
@overload
def copy(x: Any, *, out: Any = None) -> Any: ...
@overload
def cumprod(x: Tensor, axis: Any = None, *, exclusive: bool = False, out: Any = None) -> Tensor: ...
@overload
def cumprod(
    x: DeviceArray, axis: Any = None, *, exclusive: bool = False, out: Any = None
) -> DeviceArray: ...
@overload
def cumprod(
    x: Host, axis: Any = None, *, exclusive: bool = False, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def cumprod(x: Any, axis: Any = None, *, exclusive: bool = False, out: Any = None) -> Any: ...
@overload
def cumsum(x: Tensor, axis: Any = None, *, exclusive: bool = False, out: Any = None) -> Tensor: ...
@overload
def cumsum(
    x: DeviceArray, axis: Any = None, *, exclusive: bool = False, out: Any = None
) -> DeviceArray: ...
@overload
def cumsum(
    x: Host, axis: Any = None, *, exclusive: bool = False, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def cumsum(x: Any, axis: Any = None, *, exclusive: bool = False, out: Any = None) -> Any: ...
@overload
def embedding(input: Tensor, weight: Any, *, out: Any = None) -> Tensor: ...
@overload
def embedding(input: DeviceArray, weight: Any, *, out: Any = None) -> DeviceArray: ...
@overload
def embedding(input: Host, weight: Any, *, out: Any = None) -> np.ndarray[Any, Any]: ...
@overload
def embedding(input: Any, weight: Any, *, out: Any = None) -> Any: ...
@overload
def flip(x: Tensor, axis: Any = None, *, out: Any = None) -> Tensor: ...
@overload
def flip(x: DeviceArray, axis: Any = None, *, out: Any = None) -> DeviceArray: ...
@overload
def flip(x: Host, axis: Any = None, *, out: Any = None) -> np.ndarray[Any, Any]: ...
@overload
def flip(x: Any, axis: Any = None, *, out: Any = None) -> Any: ...
@overload
def gather(input: Tensor, axis: int, index: Any, *, out: Any = None) -> Tensor: ...
@overload
def gather(input: DeviceArray, axis: int, index: Any, *, out: Any = None) -> DeviceArray: ...
@overload
def gather(input: Host, axis: int, index: Any, *, out: Any = None) -> np.ndarray[Any, Any]: ...
@overload
def gather(input: Any, axis: int, index: Any, *, out: Any = None) -> Any: ...
@overload
def gelu(x: Tensor, approximate: str = 'none', *, out: Any = None) -> Tensor: ...
@overload
def gelu(x: DeviceArray, approximate: str = 'none', *, out: Any = None) -> DeviceArray: ...
@overload
def gelu(x: Host, approximate: str = 'none', *, out: Any = None) -> np.ndarray[Any, Any]: ...
@overload
def gelu(x: Any, approximate: str = 'none', *, out: Any = None) -> Any: ...
@overload
def group_norm(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05, *,
    out: Any = None
) -> Tensor: ...
@overload
def group_norm(
    input: DeviceArray, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05,
    *, out: Any = None
) -> DeviceArray: ...
@overload
def group_norm(
    input: Host, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05, *, out:
    Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05, *, out:
    Any = None
) -> Any: ...
@overload
def index_put(
    input: Tensor, indices: Any, values: Any, update: str = 'assign', *, out: Any = None
) -> Tensor: ...
@overload
def index_put(
    input: DeviceArray, indices: Any, values: Any, update: str = 'assign', *, out: Any = None
) -> DeviceArray: ...
@overload
def index_put(
    input: Host, indices: Any, values: Any, update: str = 'assign', *, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def index_put(
    input: Any, indices: Any, values: Any, update: str = 'assign', *, out: Any = None
) -> Any: ...
@overload
def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = 'nearest', align_corners:
    bool | None = False, *, layout: str = 'NCHW', out: Any = None
) -> Tensor: ...
@overload
def interpolate(
    input: DeviceArray, size: Any = None, scale_factor: Any = None, mode: str = 'nearest',
    align_corners: bool | None = False, *, layout: str = 'NCHW', out: Any = None
) -> DeviceArray: ...
@overload
def interpolate(
    input: Host, size: Any = None, scale_factor: Any = None, mode: str = 'nearest', align_corners:
    bool | None = False, *, layout: str = 'NCHW', out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = 'nearest', align_corners:
    bool | None = False, *, layout: str = 'NCHW', out: Any = None
) -> Any: ...
@overload
def interpolate_input(
    input_size: tuple[int, ...], grad_output: Tensor, mode: str = 'nearest', align_corners: bool =
    False, *, layout: str = 'NCHW'
) -> Tensor: ...
@overload
def interpolate_input(
    input_size: tuple[int, ...], grad_output: DeviceArray, mode: str = 'nearest', align_corners:
    bool = False, *, layout: str = 'NCHW'
) -> DeviceArray: ...
@overload
def interpolate_input(
    input_size: tuple[int, ...], grad_output: Host, mode: str = 'nearest', align_corners: bool =
    False, *, layout: str = 'NCHW'
) -> np.ndarray[Any, Any]: ...
@overload
def interpolate_input(
    input_size: tuple[int, ...], grad_output: Any, mode: str = 'nearest', align_corners: bool =
    False, *, layout: str = 'NCHW'
) -> Any: ...
@overload
def layer_norm(
    x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05, *,
    out: Any = None
) -> Tensor: ...
@overload
def layer_norm(
    x: DeviceArray, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05,
    *, out: Any = None
) -> DeviceArray: ...
@overload
def layer_norm(
    x: Host, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05, *,
    out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def layer_norm(
    x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05, *, out:
    Any = None
) -> Any: ...
@overload
def log_softmax(x: Tensor, axis: int = -1, *, out: Any = None) -> Tensor: ...
@overload
def log_softmax(x: DeviceArray, axis: int = -1, *, out: Any = None) -> DeviceArray: ...
@overload
def log_softmax(x: Host, axis: int = -1, *, out: Any = None) -> np.ndarray[Any, Any]: ...
@overload
def log_softmax(x: Any, axis: int = -1, *, out: Any = None) -> Any: ...
@overload
def logsumexp(
    x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> Tensor: ...
@overload
def logsumexp(
    x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any: ...
def manual_seed(seed: int) -> Generator: ...
@overload
def map(function: Any, *arrays: Tensor, out: Any = None, dtype: Any = None) -> Tensor: ...
@overload
def map(function: Any, *arrays: DeviceArray, out: Any = None, dtype: Any = None) -> DeviceArray: ...
@overload
def map(
    function: Any, *arrays: Host, out: Any = None, dtype: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def map(function: Any, *arrays: Any, out: Any = None, dtype: Any = None) -> Any: ...
@overload
def matmul(
    a: Tensor, b: Any, *, bias: Any = None, activation: Any = None, residual: Any = None, mask: Any
    = None, fill: float = 0.0, alpha: float = 1.0, out: Any = None, dtype: Any = None, precision:
    str | None = None
) -> Tensor: ...
@overload
def matmul(
    a: DeviceArray, b: Any, *, bias: Any = None, activation: Any = None, residual: Any = None, mask:
    Any = None, fill: float = 0.0, alpha: float = 1.0, out: Any = None, dtype: Any = None,
    precision: str | None = None
) -> DeviceArray: ...
@overload
def matmul(
    a: Host, b: Any, *, bias: Any = None, activation: Any = None, residual: Any = None, mask: Any =
    None, fill: float = 0.0, alpha: float = 1.0, out: Any = None, dtype: Any = None, precision: str
    | None = None
) -> np.ndarray[Any, Any]: ...
@overload
def matmul(
    a: Any, b: Any, *, bias: Any = None, activation: Any = None, residual: Any = None, mask: Any =
    None, fill: float = 0.0, alpha: float = 1.0, out: Any = None, dtype: Any = None, precision: str
    | None = None
) -> Any: ...
@overload
def max(x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def max(
    x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def max(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any: ...
@overload
def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCL', out:
    Any = None
) -> Tensor: ...
@overload
def max_pool1d(
    input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCL', out:
    Any = None
) -> DeviceArray: ...
@overload
def max_pool1d(
    input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCL', out:
    Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def max_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False, *, layout: str = 'NCL', out: Any = None
) -> Any: ...
@overload
def max_pool1d_input(
    input_size: Any, grad_output: Tensor, indices: Any, kernel_size: Any, stride: Any = None,
    padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCL'
) -> Tensor: ...
@overload
def max_pool1d_input(
    input_size: Any, grad_output: DeviceArray, indices: Any, kernel_size: Any, stride: Any = None,
    padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCL'
) -> DeviceArray: ...
@overload
def max_pool1d_input(
    input_size: Any, grad_output: Host, indices: Any, kernel_size: Any, stride: Any = None, padding:
    Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCL'
) -> np.ndarray[Any, Any]: ...
@overload
def max_pool1d_input(
    input_size: Any, grad_output: Any, indices: Any, kernel_size: Any, stride: Any = None, padding:
    Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCL'
) -> Any: ...
@overload
def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCHW', out:
    Any = None
) -> Tensor: ...
@overload
def max_pool2d(
    input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCHW', out:
    Any = None
) -> DeviceArray: ...
@overload
def max_pool2d(
    input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCHW', out:
    Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False, *, layout: str = 'NCHW', out: Any = None
) -> Any: ...
@overload
def max_pool2d_input(
    input_size: Any, grad_output: Tensor, indices: Any, kernel_size: Any, stride: Any = None,
    padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCHW'
) -> Tensor: ...
@overload
def max_pool2d_input(
    input_size: Any, grad_output: DeviceArray, indices: Any, kernel_size: Any, stride: Any = None,
    padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCHW'
) -> DeviceArray: ...
@overload
def max_pool2d_input(
    input_size: Any, grad_output: Host, indices: Any, kernel_size: Any, stride: Any = None, padding:
    Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCHW'
) -> np.ndarray[Any, Any]: ...
@overload
def max_pool2d_input(
    input_size: Any, grad_output: Any, indices: Any, kernel_size: Any, stride: Any = None, padding:
    Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCHW'
) -> Any: ...
@overload
def max_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCDHW', out:
    Any = None
) -> Tensor: ...
@overload
def max_pool3d(
    input: DeviceArray, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCDHW', out:
    Any = None
) -> DeviceArray: ...
@overload
def max_pool3d(
    input: Host, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False, *, layout: str = 'NCDHW', out:
    Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def max_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False, *, layout: str = 'NCDHW', out: Any = None
) -> Any: ...
@overload
def max_pool3d_input(
    input_size: Any, grad_output: Tensor, indices: Any, kernel_size: Any, stride: Any = None,
    padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCDHW'
) -> Tensor: ...
@overload
def max_pool3d_input(
    input_size: Any, grad_output: DeviceArray, indices: Any, kernel_size: Any, stride: Any = None,
    padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCDHW'
) -> DeviceArray: ...
@overload
def max_pool3d_input(
    input_size: Any, grad_output: Host, indices: Any, kernel_size: Any, stride: Any = None, padding:
    Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCDHW'
) -> np.ndarray[Any, Any]: ...
@overload
def max_pool3d_input(
    input_size: Any, grad_output: Any, indices: Any, kernel_size: Any, stride: Any = None, padding:
    Any = 0, dilation: Any = 1, ceil_mode: bool = False, *, layout: str = 'NCDHW'
) -> Any: ...
@overload
def mean(x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def mean(
    x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def mean(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any: ...
@overload
def min(x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def min(
    x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def min(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any: ...
@overload
def norm(
    x: Tensor, ord: float = 2, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> Tensor: ...
@overload
def norm(
    x: DeviceArray, ord: float = 2, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def norm(
    x: Any, ord: float = 2, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> Any: ...
@overload
def normal(
    mean: float = 0.0, std: float = 1.0, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = ..., device: None = None, out: None = None
) -> np.ndarray[Any, Any]: ...
@overload
def normal(
    mean: float = 0.0, std: float = 1.0, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = ..., device: Any = None, out: Any = None
) -> Any: ...
@overload
def pad(
    input: Tensor, pad: Any, mode: str = 'constant', value: float = 0, *, out: Any = None
) -> Tensor: ...
@overload
def pad(
    input: DeviceArray, pad: Any, mode: str = 'constant', value: float = 0, *, out: Any = None
) -> DeviceArray: ...
@overload
def pad(
    input: Host, pad: Any, mode: str = 'constant', value: float = 0, *, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def pad(
    input: Any, pad: Any, mode: str = 'constant', value: float = 0, *, out: Any = None
) -> Any: ...
def prepack(b: Any) -> Packed: ...
def prepack_filter(weight: Any, groups: int = 1) -> PackedFilter: ...
@overload
def prod(x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def prod(
    x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def prod(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any: ...
@overload
def randint(
    low: int, high: int | None = None, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = ..., device: None = None, out: None = None
) -> np.ndarray[Any, Any]: ...
@overload
def randint(
    low: int, high: int | None = None, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = ..., device: Any = None, out: Any = None
) -> Any: ...
@overload
def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, eps: float | None = None, *, out: Any
    = None
) -> Tensor: ...
@overload
def rms_norm(
    input: DeviceArray, normalized_shape: Any, weight: Any = None, eps: float | None = None, *, out:
    Any = None
) -> DeviceArray: ...
@overload
def rms_norm(
    input: Host, normalized_shape: Any, weight: Any = None, eps: float | None = None, *, out: Any =
    None
) -> np.ndarray[Any, Any]: ...
@overload
def rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None, *, out: Any =
    None
) -> Any: ...
@overload
def scatter(
    input: Tensor, axis: int, index: Any, src: Any, update: str = 'assign', *, out: Any = None
) -> Tensor: ...
@overload
def scatter(
    input: DeviceArray, axis: int, index: Any, src: Any, update: str = 'assign', *, out: Any = None
) -> DeviceArray: ...
@overload
def scatter(
    input: Host, axis: int, index: Any, src: Any, update: str = 'assign', *, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def scatter(
    input: Any, axis: int, index: Any, src: Any, update: str = 'assign', *, out: Any = None
) -> Any: ...
@overload
def select(input: Tensor, axis: int, index: Any, *, out: Any = None) -> Tensor: ...
@overload
def select(input: DeviceArray, axis: int, index: Any, *, out: Any = None) -> DeviceArray: ...
@overload
def select(input: Host, axis: int, index: Any, *, out: Any = None) -> np.ndarray[Any, Any]: ...
@overload
def select(input: Any, axis: int, index: Any, *, out: Any = None) -> Any: ...
@overload
def softmax(x: Tensor, axis: int = -1, *, out: Any = None) -> Tensor: ...
@overload
def softmax(x: DeviceArray, axis: int = -1, *, out: Any = None) -> DeviceArray: ...
@overload
def softmax(x: Host, axis: int = -1, *, out: Any = None) -> np.ndarray[Any, Any]: ...
@overload
def softmax(x: Any, axis: int = -1, *, out: Any = None) -> Any: ...
@overload
def sort(x: Tensor, axis: Any = -1, descending: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def sort(
    x: DeviceArray, axis: Any = -1, descending: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def sort(
    x: Host, axis: Any = -1, descending: bool = False, *, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def sort(x: Any, axis: Any = -1, descending: bool = False, *, out: Any = None) -> Any: ...
@overload
def std(
    x: Tensor, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None
) -> Tensor: ...
@overload
def std(
    x: DeviceArray, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def std(
    x: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None
) -> Any: ...
@overload
def sum(x: Tensor, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Tensor: ...
@overload
def sum(
    x: DeviceArray, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def sum(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any: ...
@overload
def take_along_axis(
    x: Tensor, indices: Any, axis: int | None = -1, *, out: Any = None
) -> Tensor: ...
@overload
def take_along_axis(
    x: DeviceArray, indices: Any, axis: int | None = -1, *, out: Any = None
) -> DeviceArray: ...
@overload
def take_along_axis(
    x: Host, indices: Any, axis: int | None = -1, *, out: Any = None
) -> np.ndarray[Any, Any]: ...
@overload
def take_along_axis(x: Any, indices: Any, axis: int | None = -1, *, out: Any = None) -> Any: ...
@overload
def topk(
    input: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]: ...
@overload
def topk(
    input: DeviceArray, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[DeviceArray, DeviceArray]: ...
@overload
def topk(
    input: Host, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]: ...
@overload
def topk(
    input: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Any, Any]: ...
@overload
def transpose(x: Tensor, axes: Any = None, *, out: Any = None) -> Tensor: ...
@overload
def transpose(x: DeviceArray, axes: Any = None, *, out: Any = None) -> DeviceArray: ...
@overload
def transpose(x: Host, axes: Any = None, *, out: Any = None) -> np.ndarray[Any, Any]: ...
@overload
def transpose(x: Any, axes: Any = None, *, out: Any = None) -> Any: ...
@overload
def uniform(
    low: float = 0.0, high: float = 1.0, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = ..., device: None = None, out: None = None
) -> np.ndarray[Any, Any]: ...
@overload
def uniform(
    low: float = 0.0, high: float = 1.0, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = ..., device: Any = None, out: Any = None
) -> Any: ...
@overload
def var(
    x: Tensor, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None
) -> Tensor: ...
@overload
def var(
    x: DeviceArray, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None
) -> DeviceArray: ...
@overload
def var(
    x: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None
) -> Any: ...
