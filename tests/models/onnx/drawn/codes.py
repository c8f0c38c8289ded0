"""Operators of codes, drawn."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.models.onnx.drawn.node import MS, Drawn, floats, yes


def product_of_bits(rng: Any) -> Drawn:
    """`MatMulNBits` of all widths and blocks, zero points, groups and biases. With groups that are
    those of blocks onnxruntime 1.32 gives something else than without where codes have 2 bits, or
    4 and packed zero points: there is no judge.
    """
    bits, block = int(rng.choice([2, 4, 8])), int(rng.choice([16, 32, 64, 128]))
    n, k = int(rng.integers(1, 40)), int(rng.integers(1, 200))
    rows = [
        (int(rng.integers(1, 5)),),
        (2, int(rng.integers(1, 4))),
        (int(rng.integers(17, 40)),),
        (),
    ][int(rng.integers(4))]
    blocks = -(-k // block)
    packed = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = (rng.random((n, blocks)) * 0.1).astype(np.float32)
    flat = yes(rng)
    how: dict[str, Any] = {"K": k, "N": n, "bits": bits, "block_size": block}
    given: list[Any] = [
        ("a", floats(rng, *rows, k)),
        ("=b", packed),
        ("=s", scales.reshape(-1) if flat else scales),
    ]
    form = str(rng.choice(["none", "packed", "floats"]))
    if form == "packed":
        zeros = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
        given.append(("=z", zeros.reshape(-1) if flat else zeros))
    elif form == "floats":
        zeros = (rng.random((n, blocks)) * (1 << bits)).astype(np.float32)
        given.append(("=z", zeros.reshape(-1) if flat else zeros))
    else:
        given.append(None)
    if yes(rng, 0.2) and bits != 2 and (bits, form) != (4, "packed"):
        given.append(("=g", (rng.permutation(blocks * block) // block).astype(np.int32)[:k]))
    else:
        given.append(None)
    given.append(("=c", floats(rng, n)) if yes(rng, 0.4) else None)
    drawn = Drawn("MatMulNBits", how, given, [np.float32])
    if yes(rng, 0.3):
        how["accuracy_level"] = int(rng.choice([0, 1, 4]))
        drawn.far = 3e-2 if how["accuracy_level"] == 4 else drawn.far
    return drawn


def product_of_tables(rng: Any) -> Drawn:
    """`MatMulBnb4` of both types, with blocks that end with rows and that do not."""
    block, n = int(rng.choice([16, 32, 64, 128])), int(rng.integers(1, 40))
    k = int(rng.integers(1, 9)) * 16 if yes(rng, 0.6) else int(rng.integers(1, 150))
    rows = [(int(rng.integers(1, 5)),), (2, 3), (int(rng.integers(17, 40)),)][int(rng.integers(3))]
    codes = rng.integers(0, 256, (n * k + 1) // 2).astype(np.uint8)
    scales = (rng.random(-(-n * k // block)) + 0.1).astype(np.float32)
    how = {"K": k, "N": n, "block_size": block, "quant_type": int(yes(rng))}
    given: list[Any] = [("a", floats(rng, *rows, k)), ("=b", codes), ("=s", scales)]
    return Drawn("MatMulBnb4", how, given, [np.float32])


def gathered_blocks(rng: Any) -> Drawn:
    """`GatherBlockQuantized` along all axes, of codes in bytes and of 4 bits."""
    bits, block = int(rng.choice([2, 4, 8])), int(rng.choice([16, 32]))
    rank = int(rng.integers(2, 4))
    shape = [int(rng.integers(1, 6)) for _ in range(rank)]
    along = int(rng.integers(rank)) if yes(rng, 0.3) else rank - 1
    axis = int(rng.integers(rank)) if yes(rng, 0.3) else 0
    shape[along] = int(rng.integers(1, 4)) * block if yes(rng, 0.7) else int(rng.integers(1, 70))
    kind = str(rng.choice(["bytes", "uint4", "int4"]))
    if kind == "bytes":
        along, shape[rank - 1] = rank - 1, int(rng.integers(1, 4)) * block
        stored = [*shape[:-1], shape[-1] * bits // 8]
        data = rng.integers(0, 256, stored).astype(np.uint8)
    else:
        bits = 4
        low = 0 if kind == "uint4" else -8
        data = rng.integers(low, low + 16, shape).astype(getattr(ml_dtypes, kind))
    counts = list(shape)
    counts[along] = -(-shape[along] // block)
    scales = (rng.random(counts) + 0.1).astype(np.float32)
    index = rng.integers(
        0, shape[axis], [int(rng.integers(1, 4)) for _ in range(int(rng.integers(0, 3)))]
    )
    minus = yes(rng, 0.2)
    how: dict[str, Any] = {
        "block_size": block,
        "gather_axis": axis - rank if minus else axis,
        "quantize_axis": along - rank if minus else along,
    }
    if kind == "bytes" or yes(rng):
        how["bits"] = bits
    given: list[Any] = [
        ("=d", data),
        ("i", index.astype(np.int64 if yes(rng) else np.int32)),
        ("=s", scales),
    ]
    if yes(rng):
        if kind == "bytes":
            zeros = rng.integers(0, 256, [*counts[:-1], -(-counts[-1] * bits // 8)]).astype(
                np.uint8
            )
        else:
            zeros = rng.integers(low, low + 16, counts).astype(data.dtype)
        given.append(("=z", zeros))
    return Drawn("GatherBlockQuantized", how, given, [np.float32])


def lstm_of_codes(rng: Any) -> Drawn:
    """`DynamicQuantizeLSTM` in all directions, with lengths, states and peepholes."""
    way = str(rng.choice(["forward", "reverse", "bidirectional"]))
    d = 2 if way == "bidirectional" else 1
    steps, batch, wide, hidden = (int(rng.integers(1, n)) for n in (6, 4, 20, 24))
    signed = yes(rng)
    dtype = np.int8 if signed else np.uint8

    def codes(*shape: int) -> Any:
        return (rng.integers(-100, 100, shape) + (0 if signed else 128)).astype(dtype)

    n = 4 * hidden if yes(rng, 0.4) else 1
    scales = [
        (rng.random((d, n) if n > 1 else (d,)) * 0.003 + 0.001).astype(np.float32) for _ in "wr"
    ]
    zeros = [np.full(s.shape, 0 if signed else 128, dtype) for s in scales]
    how: dict[str, Any] = {"hidden_size": hidden, "direction": way}
    given: list[Any] = [
        ("x", floats(rng, steps, batch, wide)),
        ("=w", codes(d, wide, 4 * hidden)),
        ("=r", codes(d, hidden, 4 * hidden)),
        ("=b", floats(rng, d, 8 * hidden, by=0.3)) if yes(rng, 0.7) else None,
        ("lengths", rng.integers(1, steps + 1, batch).astype(np.int32)) if yes(rng, 0.3) else None,
        ("h", floats(rng, d, batch, hidden)) if yes(rng, 0.4) else None,
        ("c", floats(rng, d, batch, hidden)) if yes(rng, 0.4) else None,
        ("=p", floats(rng, d, 3 * hidden, by=0.3)) if yes(rng, 0.3) else None,
        ("=ws", scales[0]),
        ("=wz", zeros[0]),
        ("=rs", scales[1]),
        ("=rz", zeros[1]),
    ]
    if yes(rng, 0.15):
        how["input_forget"] = 1
    if yes(rng, 0.2):
        how["clip"] = 0.5
    return Drawn("DynamicQuantizeLSTM", how, given, [np.float32] * 3, far=2e-2)


def _scale(rng: Any) -> Any:
    return np.float32(rng.random() * 0.1 + 0.01)


def linear_codes(rng: Any) -> Drawn:
    """`QLinear*` of com.microsoft and of ONNX."""
    op = str(
        rng.choice(
            [
                "Add",
                "Mul",
                "Sigmoid",
                "LeakyRelu",
                "GlobalAveragePool",
                "Softmax",
                "Concat",
                "AveragePool",
                "Where",
                "MatMul",
                "Conv",
            ]
        )
    )
    dtype = np.int8 if yes(rng) else np.uint8
    info = np.iinfo(dtype)

    def codes(*shape: int) -> Any:
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)

    def zero(name: str) -> Any:
        return (f"={name}", np.asarray(codes()))

    name, how, domain, given = f"QLinear{op}", {}, MS, []
    a, b, c, d = (int(rng.integers(1, n)) for n in (4, 5, 8, 8))
    if op in ("Add", "Mul"):
        other = [(a, b, c), (c,), (b, 1), ()][int(rng.integers(4))]
        given = [("a", codes(a, b, c)), ("=as", _scale(rng)), zero("az")]
        given += [("b" if yes(rng) else "=b", codes(*other)), ("=bs", _scale(rng)), zero("bz")]
        given += [("=ys", _scale(rng) * 3), zero("yz") if yes(rng, 0.7) else None]
    elif op in ("Sigmoid", "LeakyRelu"):
        given = [("x", codes(a, c)), ("=xs", _scale(rng)), zero("xz") if yes(rng, 0.7) else None]
        given += [("=ys", _scale(rng)), zero("yz")]
        how = {"alpha": 0.2} if op == "LeakyRelu" and yes(rng) else {}
    elif op == "GlobalAveragePool":
        last = yes(rng)
        how = {"channels_last": int(last)}
        given = [
            ("x", codes(a, c, d, b) if last else codes(a, b, c, d)),
            ("=xs", _scale(rng)),
            zero("xz"),
        ]
        given += [("=ys", _scale(rng)), zero("yz")]
    elif op == "AveragePool":
        how = {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 1]}
        how |= {"count_include_pad": int(yes(rng)), "ceil_mode": int(yes(rng))}
        given = [("x", codes(a, b, c + 3, d + 3)), ("=xs", _scale(rng)), zero("xz")]
        given += [("=ys", _scale(rng)), zero("yz")]
    elif op == "Softmax":
        opset = int(rng.choice([11, 13]))
        how = {"axis": int(rng.integers(-3, 3)), "opset": opset}
        given = [("x", codes(a, b, c)), ("=xs", _scale(rng)), zero("xz")]
        given += [("=ys", np.float32(1 / 256)), ("=yz", dtype(info.min))]
    elif op == "Concat":
        how = {"axis": 1}
        given = [("=ys", _scale(rng)), zero("yz")]
        for k in range(int(rng.integers(1, 4))):
            given += [
                (f"x{k}", codes(a, int(rng.integers(1, 4)), c)),
                (f"=s{k}", _scale(rng)),
                zero(f"z{k}"),
            ]
    elif op == "Where":
        given = [("if", rng.random((a, b, 1)) < 0.5)]
        for k, shape in enumerate([(a, b, c), (c,)]):
            given += [(f"x{k}", codes(*shape)), (f"=s{k}", _scale(rng)), zero(f"z{k}")]
        given += [("=ys", _scale(rng)), zero("yz")]
    elif op == "MatMul":
        domain = ""
        by_column = yes(rng, 0.3)
        bs = (rng.random(d) * 0.1 + 0.01).astype(np.float32) if by_column else _scale(rng)
        bz = ("=bz", codes(d) if by_column else np.asarray(codes()))
        given = [
            ("a", codes(a, b, c)),
            ("=as", _scale(rng)),
            zero("az"),
            ("=b", codes(c, d)),
            ("=bs", bs),
            bz,
        ]
        given += [("=ys", _scale(rng) * 10), zero("yz")]
    elif op == "Gemm":
        name, ta, tb = "QGemm", yes(rng), yes(rng)
        by_column, float_out = yes(rng, 0.4), yes(rng, 0.4)
        bs = (rng.random(d) * 0.1 + 0.01).astype(np.float32) if by_column else _scale(rng)
        bz = ("=bz", codes(d) if by_column else np.asarray(codes()))
        how = {"transA": int(ta), "transB": int(tb), "alpha": float(rng.choice([1.0, 0.5]))}
        given = [("a", codes(c, b) if ta else codes(b, c)), ("=as", _scale(rng)), zero("az")]
        given += [("=b", codes(d, c) if tb else codes(c, d)), ("=bs", bs), bz]
        more = [(b, d), (d,), (b, 1)][int(rng.integers(3))]
        given.append(("c", rng.integers(-999, 999, more).astype(np.int32)) if yes(rng) else None)
        if float_out:
            return Drawn(name, how, given, [np.float32])
        given += [("=ys", _scale(rng) * 10), zero("yz")]
    else:
        domain, groups = "", int(rng.choice([1, 2]))
        channels, filters = groups * b, groups * a
        by_filter = yes(rng, 0.4)
        ws = (rng.random(filters) * 0.1 + 0.01).astype(np.float32) if by_filter else _scale(rng)
        wz = (
            "=wz",
            np.zeros(filters if by_filter else (), dtype)
            + (dtype(128) if dtype == np.uint8 else dtype(0)),
        )
        how = {"group": groups, "pads": [1, 0, 1, 2], "strides": [1, 2]}
        given = [("x", codes(1, channels, c + 3, d + 3)), ("=xs", _scale(rng)), zero("xz")]
        given += [
            ("=w", codes(filters, b, 3, 2)),
            ("=ws", ws),
            wz,
            ("=ys", _scale(rng) * 20),
            zero("yz"),
        ]
        given.append(
            ("=b", rng.integers(-999, 999, filters).astype(np.int32)) if yes(rng) else None
        )
    return Drawn(name, how, given, [np.dtype(dtype)], domain, codes=1)
