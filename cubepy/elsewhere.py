"""Where a name of PyTorch or NumPy is that somebody looked for in a module which does not have it.

Loaded when an AttributeError is about to be raised, never before.
"""

from __future__ import annotations

import importlib

DTYPES = {
    "bfloat16": "cb.bf16",
    "bool": "cb.bool_",
    "double": "cb.f64",
    "float": "cb.f32",
    "float16": "cb.f16",
    "float32": "cb.f32",
    "float64": "cb.f64",
    "float8_e4m3fn": "cb.fp8_e4m3",
    "float8_e5m2": "cb.fp8_e5m2",
    "half": "cb.f16",
    "int": "cb.i32",
    "int16": "cb.i16",
    "int32": "cb.i32",
    "int64": "cb.i64",
    "int8": "cb.i8",
    "long": "cb.i64",
    "short": "cb.i16",
    "uint16": "cb.u16",
    "uint32": "cb.u32",
    "uint64": "cb.u64",
    "uint8": "cb.u8",
}
OTHERWISE = {
    "FloatTensor": "cb.tensor(data, cb.f32)",
    "LongTensor": "cb.tensor(data, cb.i64)",
    "as_tensor": "cb.tensor.as_tensor, or cb.tensor",
    "amp": "model.bfloat16(), which trains with sums in f32",
    "array": "cb.tensor",
    "autocast": "model.bfloat16(), which trains with sums in f32",
    "autograd": "cb.grad, cb.grad_of and t.backward()",
    "backends": "cb.devices() and cb.use",
    "bernoulli": "cb.Generator(seed).bernoulli(p, shape)",
    "broadcast_tensors": "cb.tensor.broadcast_arrays",
    "cat": "cb.tensor.concat",
    "compile": "cb.jit",
    "concatenate": "cb.tensor.concat",
    "cuda": 'cb.devices() and cb.use("cuda"); cb.sync() waits',
    "device": 'cb.Device("cuda", 0); where a device is asked for, "cuda:0" does',
    "from_numpy": "cb.tensor",
    "get_default_device": "cb.current_device",
    "inference_mode": "cb.no_grad",
    "is_tensor": "isinstance(x, cb.Tensor)",
    "manual_seed": "a generator of yours: cb.Generator(seed), given where numbers are drawn",
    "multinomial": "cb.Generator(seed).multinomial(weights, num_samples)",
    "ndarray": "cb.Tensor, of tensors; cb.Array, in kernels",
    "normal": "cb.Generator(seed).normal(shape, mean, std)",
    "optim": "cb.nn.optim",
    "permute": "x.permute",
    "rand": "cb.Generator(seed).uniform(shape)",
    "randint": "cb.Generator(seed).integers(low, high, shape)",
    "randn": "cb.Generator(seed).normal(shape)",
    "random": "cb.Generator(seed)",
    "randperm": "cb.Generator(seed).permutation(n)",
    "set_default_dtype": "dtype= where a tensor is made, and model.to(cb.f64)",
    "set_printoptions": "numpy.set_printoptions, which tensors follow",
    "set_default_device": "cb.use(device)",
    "Size": "a tuple: x.shape",
    "ShapeDtypeStruct": "cb.TensorSpec",
    "array_equal": "x.shape == y.shape and (x == y).all()",
    "array_split": "x.tensor_split",
    "associative_scan": "cb.scan, or x.cumsum and x.cumprod",
    "average": "x.mean, or (x * weights).sum() / weights.sum()",
    "block_until_ready": "cb.sync(), which waits for the device",
    "can_promote": "cb.tensor.can_cast",
    "choose": "cb.tensor.where",
    "custom_jvp": "cb.custom_vjp",
    "device_put": "x.to(device), or cb.tensor(data, device=device)",
    "enable_x64": "cb.f64, which is always there",
    "eval_shape": "cb.explain(f, x), which runs nothing",
    "flatnonzero": "x.reshape(-1).nonzero()",
    "fori_loop": "cb.scan(f, init, None, length=n)",
    "hessian": "cb.grad of each element of cb.grad(f)(x)",
    "histogram": "x.histc",
    "hstack": "cb.tensor.concat(tensors, axis=1)",
    **dict.fromkeys(
        ("jacfwd", "jacobian", "jacrev"), "cb.grad of each element of what the function gives"
    ),
    "jvp": "cb.grad: gradients are computed backwards",
    "lax": "cb.scan, cb.cond and cb.tensor.while_loop",
    "left_shift": "cb.tensor.bitwise_left_shift",
    "make_jaxpr": "cb.explain(f, x)",
    "mod": "cb.tensor.remainder",
    "percentile": "x.quantile(q / 100)",
    "power": "cb.tensor.pow",
    "ptp": "x.max() - x.min()",
    "put_along_axis": "x.scatter(axis, indices, values)",
    "remat": "cb.checkpoint",
    "right_shift": "cb.tensor.bitwise_right_shift",
    "rint": "cb.tensor.round",
    "stop_gradient": "x.detach()",
    "switch": "cb.cond, one in the other",
    "top_k": "x.topk(k)",
    **dict.fromkeys(
        ("tree", "tree_map", "tree_util"),
        "a tuple, list or dict, which cb.grad and cb.jit take as they are",
    ),
    "tri": "cb.tensor.tril(cb.tensor.ones((n, n)))",
    "vjp": "cb.grad_of(y, x, gradient), or y.backward(gradient)",
    "vmap": "x[:, None]: functions take axes in front; cb.scan goes along one",
    "vstack": "cb.tensor.concat(tensors, axis=0)",
    "utils": "cb.nn.utils; batches of data are slices: x[order[k : k + size]]",
}
"""Names that are called differently, and what to write."""
ROOMS = ("tensor", "tensor.linalg", "nn", "nn.functional", "kernels")
"""Modules that are looked through, in their order."""


OF_TENSORS = {
    **dict.fromkeys(
        ("resize_", "squeeze_", "swapaxes_", "t_", "transpose_", "unsqueeze_"),
        "the method without _: in place a tensor keeps its shape",
    ),
    "angle": "cb.tensor.atan2; tensors are real",
    "cauchy_": "cb.Generator(seed), and functions of what it draws",
    "data_ptr": "x.numpy(), or x.__dlpack__()",
    "detach_": "x.detach()",
    "geometric_": "cb.Generator(seed), and functions of what it draws",
    "grad_fn": "x.is_leaf, x.requires_grad",
    "histogram": "x.histc",
    "log_normal_": "cb.Generator(seed).normal(shape), and exp",
    "random_": "cb.Generator(seed).integers(low, high, shape)",
    "to_sparse": "x.nonzero; there are no sparse tensors",
}
"""What to write for methods that tensors do not have."""


def hint(name: str) -> str:
    """What to write in place of a name; empty where nobody knows it.

    Example:
        >>> hint("float32"), hint("zeros"), hint("softmax"), hint("frobnicate")
        ('cb.f32', 'cb.tensor.zeros', 'x.softmax, of a tensor x', '')
    """
    if name.startswith("_"):  # asked by tools, not by people
        return ""
    if name in DTYPES or name in OTHERWISE:
        return DTYPES.get(name) or OTHERWISE[name]
    for room in ROOMS:
        if room == "nn" and hasattr(importlib.import_module("cubepy.tensor").Tensor, name):
            return f"x.{name}, of a tensor x"
        module = importlib.import_module(f"cubepy.{room}")
        if name in getattr(module, "__all__", ()):
            return f"cb.{room}.{name}"
    return ""


def missing(module: str, name: str) -> AttributeError:
    """The error for a name that a module does not have.

    Example:
        >>> str(missing("cubepy", "float32"))
        "module 'cubepy' has no attribute 'float32': see cb.f32"
    """
    said = hint(name)
    said = f": see {said}" if said else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{said}", name=name)


def missing_of_tensors(name: str) -> AttributeError:
    """The error for an attribute that a tensor does not have.

    Example:
        >>> str(missing_of_tensors("squeeze_"))[:60]
        "'Tensor' object has no attribute 'squeeze_': see the method "
    """
    said = "" if name.startswith("_") else OF_TENSORS.get(name, "")
    for room in ("tensor", "tensor.linalg", "nn.functional"):
        if not said and not name.startswith("_"):
            module = importlib.import_module(f"cubepy.{room}")
            said = f"cb.{room}.{name}" if name in module.__all__ else ""
    said = f": see {said}" if said else ""
    return AttributeError(f"'Tensor' object has no attribute {name!r}{said}")
