"""The messages of ONNX (onnx.proto, IR versions 3 to 14) as schemas, and its element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from cubepy.models.formats.protobuf import Field, Schema

F = Field

SCHEMAS: dict[str, Schema] = {
    "Model": {
        1: F("ir_version", "int"),
        2: F("producer_name", "text"),
        3: F("producer_version", "text"),
        4: F("domain", "text"),
        5: F("model_version", "int"),
        7: F("graph", "Graph"),
        8: F("opset_import", "OperatorSet", True),
        14: F("metadata_props", "Entry", True),
        25: F("functions", "Function", True),
    },
    "OperatorSet": {1: F("domain", "text"), 2: F("version", "int")},
    "Entry": {1: F("key", "text"), 2: F("value", "text")},
    "Graph": {
        1: F("node", "Node", True),
        2: F("name", "text"),
        5: F("initializer", "Tensor", True),
        11: F("input", "ValueInfo", True),
        12: F("output", "ValueInfo", True),
        13: F("value_info", "ValueInfo", True),
        15: F("sparse_initializer", "SparseTensor", True),
    },
    "Node": {
        1: F("input", "text", True),
        2: F("output", "text", True),
        3: F("name", "text"),
        4: F("op_type", "text"),
        5: F("attribute", "Attribute", True),
        7: F("domain", "text"),
        8: F("overload", "text"),
    },
    "Attribute": {
        1: F("name", "text"),
        2: F("f", "float"),
        3: F("i", "int"),
        4: F("s", "bytes"),
        5: F("t", "Tensor"),
        6: F("g", "Graph"),
        7: F("floats", "float", True),
        8: F("ints", "int", True),
        9: F("strings", "bytes", True),
        10: F("tensors", "Tensor", True),
        11: F("graphs", "Graph", True),
        14: F("tp", "Type"),
        15: F("type_protos", "Type", True),
        20: F("type", "int"),
        21: F("ref_attr_name", "text"),
        22: F("sparse_tensor", "SparseTensor"),
        23: F("sparse_tensors", "SparseTensor", True),
    },
    "Function": {
        1: F("name", "text"),
        4: F("input", "text", True),
        5: F("output", "text", True),
        6: F("attribute", "text", True),
        7: F("node", "Node", True),
        9: F("opset_import", "OperatorSet", True),
        10: F("domain", "text"),
        11: F("attribute_proto", "Attribute", True),
        13: F("overload", "text"),
    },
    "Tensor": {
        1: F("dims", "int", True),
        2: F("data_type", "int"),
        4: F("float_data", "float", True),
        5: F("int32_data", "int", True),
        6: F("string_data", "bytes", True),
        7: F("int64_data", "int", True),
        8: F("name", "text"),
        9: F("raw_data", "bytes"),
        10: F("double_data", "double", True),
        11: F("uint64_data", "uint", True),
        13: F("external_data", "Entry", True),
        14: F("data_location", "int"),
    },
    "SparseTensor": {
        1: F("values", "Tensor"),
        2: F("indices", "Tensor"),
        3: F("dims", "int", True),
    },
    "ValueInfo": {1: F("name", "text"), 2: F("type", "Type")},
    "Type": {
        1: F("tensor_type", "TensorType"),
        4: F("sequence_type", "Holder"),
        5: F("map_type", "MapType"),
        8: F("sparse_tensor_type", "TensorType"),
        9: F("optional_type", "Holder"),
    },
    "TensorType": {1: F("elem_type", "int"), 2: F("shape", "Shape")},
    "Holder": {1: F("elem_type", "Type")},
    "MapType": {1: F("key_type", "int"), 2: F("value_type", "Type")},
    "Shape": {1: F("dim", "Dimension", True)},
    "Dimension": {1: F("dim_value", "int"), 2: F("dim_param", "text")},
}

DTYPES: dict[int, np.dtype] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    8: np.dtype(object),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
    14: np.dtype(np.complex64),
    15: np.dtype(np.complex128),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
}
"""Element types by their numbers in a file; texts are NumPy's objects."""
for _code, _name in {
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
    27: "float6_e2m3fn",
    28: "float6_e3m2fn",
}.items():
    if hasattr(ml_dtypes, _name):  # of ml_dtypes 0.5 and later
        DTYPES[_code] = np.dtype(getattr(ml_dtypes, _name))

CODES = {dtype: code for code, dtype in DTYPES.items()}
BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
"""Bits of an element in a file, where they are fewer than a byte in memory."""
NAMES = {
    np.dtype(np.float32): "f32",
    np.dtype(np.float64): "f64",
    np.dtype(np.float16): "f16",
    np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(np.bool_): "bool",
    np.dtype(object): "text",
    **{np.dtype(f"int{n}"): f"i{n}" for n in (8, 16, 32, 64)},
    **{np.dtype(f"uint{n}"): f"u{n}" for n in (8, 16, 32, 64)},
}


def dtype_name(dtype: np.dtype | None) -> str:
    """What an element type is called here; NumPy's name where there is no shorter one.

    Example:
        >>> dtype_name(np.dtype(np.float32)), dtype_name(DTYPES[22])
        ('f32', 'int4')
    """
    return "unknown" if dtype is None else NAMES.get(dtype, dtype.name)
