"""Shape rules: the types of an operation's results from those of its operands.

Called with as many operands as the table allows and attributes of the right types; raise IrError saying what was
given and what was needed. Letters as in core.py: T tokens, R logit rows, N outputs, K inputs, H, K heads, D head size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from unsay.compiler.ir.types import DTYPES, ROW, Dim, Extent, TensorType, paired
from unsay.errors import IrError
from unsay.isa.formats import FLOAT_WEIGHTS, QUANT_BLOCK, QUANTISED_ACTIVATIONS, QUANTISED_WEIGHTS, DType

Types: TypeAlias = Sequence[TensorType]
Attributes: TypeAlias = Mapping[str, Any]
Dims: TypeAlias = Mapping[str, Dim]
Result: TypeAlias = tuple[TensorType, ...]

_WEIGHTS = FLOAT_WEIGHTS | QUANTISED_WEIGHTS


def tokens(_types: Types, _attributes: Attributes, dims: Dims) -> Result:
    """[T] i32"""
    return (TensorType((_dim(dims, "T"),), DType.I32),)


def embed(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """ids [T] i32, w [V, E] -> [T, E] f32"""
    ids, w = types
    _need(ids.rank == 1 and ids.dtype is DType.I32, "ids must be a vector of i32, got {}", ids)
    _matrix(w, "w")
    _need(w.layout == ROW, "w must be in row layout, got {}", w)
    return (TensorType((ids.dims[0], w.dims[1]), DType.F32),)


def rms_norm(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x [.., E] f32, gamma [E] f32 -> [.., E] f32 or q8w"""
    x = types[0]
    _need(x.rank > 0 and x.dtype is DType.F32, "x must be rows of f32, got {}", x)
    for vector in types[1:]:
        _vector(vector, x.dims[-1], ROW, x.device)
    return (_output(x, attributes["output"]),)


layer_norm = rms_norm


def linear(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """x [T, K] f32 or (for a quantised w) q8a or q8w, w [N, K], bias [N] f32 -> [T, N] f32, in the layout of w"""
    x, w, *biases = types
    return (_product(x, w, biases),)


def rope(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x [T, H*D] f32 -> the same"""
    (x,) = types
    _rotated(x, attributes["num_heads"], attributes["head_dim"], attributes["pairing"])
    return (x,)


def attention(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """q [T, H*D], k [T, K*D], v [T, K*D] f32 -> [T, H*D] f32 or q8a; q and k in the same order"""
    q, k, v = types
    head_dim = attributes["head_dim"]
    _heads(q, attributes["num_heads"], head_dim)
    _heads(k, attributes["num_kv_heads"], head_dim)
    _heads(v, attributes["num_kv_heads"], head_dim)
    _need(q.layout == k.layout, "q and k must be in the same layout, got {} and {}", q, k)
    _need(v.layout == ROW, "v must be in row layout, got {}", v)
    _need(q.dims[0] == k.dims[0] == v.dims[0], "q, k, v must have as many rows, got {}, {}, {}", q, k, v)
    return (_output(TensorType(q.dims, DType.F32), attributes["output"]),)


def elementwise(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """f32 tensors of one type -> the same"""
    first = types[0]
    _need(first.dtype is DType.F32, "operands must be f32, got {}", first)
    for other in types[1:]:
        _need(other == first, "operands must be of one type, got {} and {}", first, other)
    return (first,)


def quantise(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x [T, K] f32, K a multiple of 32 -> [T, K] q8a or q8w"""
    (x,) = types
    _need(x.dtype is DType.F32, "x must be f32, got {}", x)
    return (_output(x, attributes["output"]),)


def select_rows(types: Types, _attributes: Attributes, dims: Dims) -> Result:
    """x [T, N] -> [R, N]"""
    (x,) = types
    _need(x.rank == 2 and x.dims[0] == _dim(dims, "T"), "x must have T rows, got {}", x)
    return (TensorType((_dim(dims, "R"), *x.dims[1:]), x.dtype, x.layout, x.device),)


def qkv(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x [T, E], wq [H*D, E], wk, wv [K*D, E] of one format, three biases or none -> [T, H*D], [T, K*D], [T, K*D] f32"""
    x, wq, wk, wv, *biases = types
    _need(len(biases) in (0, 3), "q, k and v have a bias each, or none has, got {}", len(biases))
    _need(wq.dtype == wk.dtype == wv.dtype, "wq, wk, wv must be of one format, got {}, {}, {}", wq, wk, wv)
    q, k, v = (_product(x, w, biases[index : index + 1]) for index, w in enumerate((wq, wk, wv)))
    head_dim, num_kv_heads = attributes["head_dim"], attributes["num_kv_heads"]
    _rotated(q, attributes["num_heads"], head_dim, attributes["pairing"])
    _rotated(k, num_kv_heads, head_dim, attributes["pairing"])
    _heads(v, num_kv_heads, head_dim)
    _need(q.layout == k.layout and v.layout == ROW, "q and k must be in one layout, v in row, got {}, {}, {}", q, k, v)
    return q, k, v


def linear_add(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """residual [T, N] f32, x [T, K], w [N, K], bias [N] -> [T, N] f32"""
    residual, x, w, *biases = types
    return elementwise((residual, _product(x, w, biases)), {}, {})


def silu_mul(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """gate, up [T, F] f32 -> [T, F] f32 or q8w"""
    (hidden,) = elementwise(types, {}, {})
    return (_output(hidden, attributes["output"]),)


def ffn(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """residual [T, E] f32, x [T, E], gate, up [F, E] of one format, down [E, F] -> [T, E] f32"""
    residual, x, gate, up, down = types
    _need(gate == up, "gate and up must be of one type, got {} and {}", gate, up)
    hidden = _output(_product(x, gate, ()), attributes["hidden"])
    wanted = "q8w" if down.dtype in QUANTISED_WEIGHTS else "f32"
    _need(attributes["hidden"] == wanted, "hidden must be {} for a down of {}", wanted, down)
    return elementwise((residual, _product(hidden, down, ())), {}, {})


def _product(x: TensorType, w: TensorType, biases: Sequence[TensorType]) -> TensorType:
    _matrix(w, "w")
    num_outputs, num_inputs = w.dims
    _need(x.rank == 2 and x.dims[1] == num_inputs, "x must have {} columns for a w of {}, got {}", num_inputs, w, x)
    _need(x.layout == ROW, "x must be in row layout, got {}", x)
    quantised = x.dtype in QUANTISED_ACTIVATIONS and w.dtype in QUANTISED_WEIGHTS
    _need(x.dtype is DType.F32 or quantised, "x must be f32, or q8a or q8w for a quantised w, got {} and {}", x, w)
    for bias in biases:
        _vector(bias, num_outputs, w.layout)
    return TensorType((x.dims[0], num_outputs), DType.F32, w.layout)


def _output(x: TensorType, dtype: str) -> TensorType:
    """x in f32, or quantised, which needs whole blocks along its last dimension."""
    if dtype == "f32":
        return x
    columns = x.dims[-1]
    whole = isinstance(columns, int) and columns % QUANT_BLOCK == 0
    _need(whole and x.layout == ROW, "{} needs a multiple of {} columns in row layout, got {}", dtype, QUANT_BLOCK, x)
    return TensorType(x.dims, DTYPES[dtype], x.layout, x.device)


def _rotated(x: TensorType, num_heads: int, head_dim: int, pairing: str) -> None:
    _heads(x, num_heads, head_dim)
    allowed = (ROW,) if pairing == "adjacent" else (ROW, paired(head_dim))
    _need(x.layout in allowed, "{} pairs of {} need layout {}, got {}", pairing, head_dim, " or ".join(allowed), x)


def _heads(x: TensorType, num_heads: int, head_dim: int) -> None:
    _activation(x, "q, k, v")
    columns = num_heads * head_dim
    _need(x.dims[1] == columns, "{} heads of {} need {} columns, got {}", num_heads, head_dim, columns, x)


def _activation(x: TensorType, role: str) -> None:
    _need(x.rank == 2 and x.dtype is DType.F32, "{} must be a matrix of f32, got {}", role, x)


def _matrix(w: TensorType, role: str) -> None:
    fits = w.rank == 2 and w.dtype in _WEIGHTS and all(isinstance(dim, int) for dim in w.dims)
    _need(fits, "{} must be a weight matrix of fixed size, got {}", role, w)


def _vector(vector: TensorType, length: Extent, layout: str, device: str = "cpu") -> None:
    wanted = TensorType((length,), DType.F32, layout, device)
    _need(vector == wanted, "a vector must be {}, got {}", wanted, vector)


def _dim(dims: Dims, name: str) -> Dim:
    dim = dims.get(name)
    if dim is None:
        raise IrError(f"the graph has no dimension {name}, it has {', '.join(dims) or 'none'}")
    return dim


def _need(fits: bool, message: str, *values: object) -> None:
    """The message is formatted only when it is raised: rules run thousands of times, and rarely fail."""
    if not fits:
        raise IrError(message.format(*values))
