"""Kernels in Triton, and the Triton IR in this directory made of them.

Run with the package `triton` installed (no GPU is needed): python tests/data/triton/make.py
The .ttir files are in the generic form of MLIR, which Triton prints when an attribute of the module cannot be spelled
otherwise. The comment at the head of each says how tests/compiler/frontend/test_triton.py launches it.
"""

from __future__ import annotations

from pathlib import Path

import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).parent


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """out = x + y, the last block masked."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def gelu(x, out, scale, n, BLOCK: tl.constexpr):
    """out = gelu(scale * x) by tanh, in halves, computed in float32."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) * scale
    inner = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    e = tl.exp(2.0 * inner)
    y = 0.5 * v * (1.0 + (e - 1.0) / (e + 1.0))
    tl.store(out + at, y.to(tl.float16), mask=mask)


@triton.jit
def row_sum(x, out, columns, BLOCK: tl.constexpr):
    """out[row] = the sum of a row, block after block."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


@triton.jit
def block_max(x, out, n, BLOCK: tl.constexpr):
    """out[block] = the greatest of each block of x, the last one masked."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.max(tl.load(x + at, mask=at < n, other=-float("inf")), axis=0))


@triton.jit
def softmax(out, x, x_stride, out_stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Each row by itself; programs stride through the rows."""
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        at = tl.arange(0, BLOCK)
        mask = at < columns
        v = tl.load(x + row * x_stride + at, mask=mask, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=mask)


@triton.jit
def causal_softmax(x, out, T, scale, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """softmax(scale * x) over the columns at or before the row; several rows a program."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = (rows[:, None] < T) & (columns[None, :] < T)
    at = rows[:, None] * T + columns[None, :]
    v = tl.load(x + at, mask=inside, other=0.0) * scale
    v = tl.where((rows[:, None] >= columns[None, :]) & (columns[None, :] < T), v, -float("inf"))
    e = tl.exp2((v - tl.max(v, axis=1)[:, None]) * 1.4426950408889634)
    tl.store(out + at, e / tl.sum(e, axis=1)[:, None], mask=inside)


@triton.jit
def layer_norm(x, out, weight, bias, columns, eps, BLOCK: tl.constexpr):
    """Mean and variance in two loops over a row, then a third that writes."""
    row = tl.program_id(0)
    x += row * columns
    out += row * columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < columns, other=0.0)
    mean = tl.sum(total, axis=0) / columns
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        centred = tl.where(at < columns, tl.load(x + at, mask=at < columns, other=0.0) - mean, 0.0)
        square += centred * centred
    scale = 1 / tl.sqrt(tl.sum(square, axis=0) / columns + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < columns
        v = (tl.load(x + at, mask=mask) - mean) * scale
        tl.store(out + at, v * tl.load(weight + at, mask=mask) + tl.load(bias + at, mask=mask), mask=mask)


@triton.jit
def rms_norm(x, out, weight, columns, eps, BLOCK: tl.constexpr):
    """A row in one tile."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    v = tl.load(x + row * columns + at, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / columns + eps)
    tl.store(out + row * columns + at, v * scale * tl.load(weight + at, mask=mask), mask=mask)


@triton.jit
def matmul(
    a, b, c, M, N, K, a_stride, b_stride, c_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """c = leaky_relu(a b), programs in groups of rows so that they share b in the cache; indices wrap at the ends."""
    pid = tl.program_id(0)
    row_blocks, column_blocks = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP * column_blocks
    first = (pid // in_group) * GROUP
    height = min(row_blocks - first, GROUP)
    row_block = first + ((pid % in_group) % height)
    column_block = (pid % in_group) // height
    rows = (row_block * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (column_block * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    inner = tl.arange(0, BLOCK_K)
    a_at = a + rows[:, None] * a_stride + inner[None, :]
    b_at = b + inner[:, None] * b_stride + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = tl.load(a_at, mask=inner[None, :] < K - k * BLOCK_K, other=0.0)
        right = tl.load(b_at, mask=inner[:, None] < K - k * BLOCK_K, other=0.0)
        total = tl.dot(left, right, total)
        a_at += BLOCK_K
        b_at += BLOCK_K * b_stride
    total = tl.where(total >= 0, total, 0.01 * total)
    rows = row_block * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column_block * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * c_stride + columns[None, :], total.to(tl.float16), mask=mask)


@triton.jit
def linear(x, w, bias, out, T, N, K, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """out = silu(x w^T + bias): w is stored [N, K] and its tiles are transposed."""
    rows = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        x_mask = (rows[:, None] < T) & (inner[None, :] < K)
        w_mask = (columns[:, None] < N) & (inner[None, :] < K)
        left = tl.load(x + rows[:, None] * K + inner[None, :], mask=x_mask, other=0.0)
        right = tl.load(w + columns[:, None] * K + inner[None, :], mask=w_mask, other=0.0)
        total += tl.dot(left, tl.trans(right))
    total += tl.load(bias + columns, mask=columns < N)[None, :]
    y = total * tl.sigmoid(total)
    tl.store(out + rows[:, None] * N + columns[None, :], y, mask=(rows[:, None] < T) & (columns[None, :] < N))


@triton.jit
def refused(x, index, out, n, BLOCK: tl.constexpr):
    """Three things that are no operation on whole tensors: an atomic, a scan, an address that is data."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + at, mask=mask, other=0.0)
    tl.atomic_add(out + 0, tl.sum(v, axis=0))
    total = tl.cumsum(v, axis=0)
    tl.store(out + tl.load(index + at, mask=mask), total, mask=mask)


@triton.jit
def flash(q, k, v, out, T, scale, ROWS: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr):
    """Online softmax: what the loop carries is rescaled in every iteration."""
    rows, d = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + d[None, :])
    most = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, D), tl.float32)
    for start in range(0, T, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        keys = tl.load(k + columns[None, :] * D + d[:, None])
        scores = tl.dot(queries, keys) * scale
        new = tl.maximum(most, tl.max(scores, axis=1))
        p = tl.exp(scores - new[:, None])
        rescale = tl.exp(most - new)
        total = total * rescale + tl.sum(p, axis=1)
        mixed = mixed * rescale[:, None] + tl.dot(p, tl.load(v + columns[:, None] * D + d[None, :]))
        most = new
    tl.store(out + rows[:, None] * D + d[None, :], mixed / total[:, None])


P32, P16 = "*fp32", "*fp16"
KERNELS = (
    (add, {"x": P32, "y": P32, "out": P32, "n": "i32"}, {"BLOCK": 256},
     "launch(tensor<1000 x f32>, tensor<1000 x f32>, tensor<1000 x f32>, 1000) grid(4)"),
    (gelu, {"x": P16, "out": P16, "scale": "fp32", "n": "i32"}, {"BLOCK": 128},
     "launch(tensor<10 x 30 x f16>, tensor<10 x 30 x f16>, 1.5, 300) grid(3)"),
    (row_sum, {"x": P32, "out": P32, "columns": "i32"}, {"BLOCK": 64},
     "launch(tensor<12 x 200 x f32>, tensor<12 x f32>, 200) grid(12)"),
    (block_max, {"x": P32, "out": P32, "n": "i32"}, {"BLOCK": 64},
     "launch(tensor<500 x f32>, tensor<8 x f32>, 500) grid(8)"),
    (softmax, {"out": P32, "x": P32, "x_stride": "i32", "out_stride": "i32", "rows": "i32", "columns": "i32"},
     {"BLOCK": 128, "STAGES": 2},
     "launch(tensor<33 x 100 x f32>, tensor<33 x 100 x f32>, 100, 100, 33, 100) grid(8)"),
    (causal_softmax, {"x": P32, "out": P32, "T": "i32", "scale": "fp32"}, {"ROWS": 16, "BLOCK": 64},
     "launch(tensor<50 x 50 x f32>, tensor<50 x 50 x f32>, 50, 0.125) grid(4)"),
    (layer_norm, {"x": P32, "out": P32, "weight": P32, "bias": P32, "columns": "i32", "eps": "fp32"}, {"BLOCK": 64},
     "launch(tensor<7 x 150 x f32>, tensor<7 x 150 x f32>, tensor<150 x f32>, tensor<150 x f32>, 150, 0.00001) "
     "grid(7)"),
    (rms_norm, {"x": P32, "out": P32, "weight": P32, "columns": "i32", "eps": "fp32"}, {"BLOCK": 256},
     "launch(tensor<7 x 150 x f32>, tensor<7 x 150 x f32>, tensor<150 x f32>, 150, 0.00001) grid(7)"),
    (matmul, {"a": P16, "b": P16, "c": P16, "M": "i32", "N": "i32", "K": "i32", "a_stride": "i32", "b_stride": "i32",
              "c_stride": "i32"}, {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP": 2},
     "launch(tensor<100 x 72 x f16>, tensor<72 x 50 x f16>, tensor<100 x 50 x f16>, 100, 50, 72, 72, 50, 50) "
     "grid(16)"),
    (linear, {"x": P32, "w": P32, "bias": P32, "out": P32, "T": "i32", "N": "i32", "K": "i32"},
     {"BLOCK_T": 16, "BLOCK_N": 32, "BLOCK_K": 16},
     "launch(tensor<20 x 40 x f32>, tensor<70 x 40 x f32>, tensor<70 x f32>, tensor<20 x 70 x f32>, 20, 70, 40) "
     "grid(2, 3)"),
    (refused, {"x": P32, "index": "*i32", "out": P32, "n": "i32"}, {"BLOCK": 64},
     "launch(tensor<100 x f32>, tensor<100 x i32>, tensor<100 x f32>, 100) grid(2)"),
    (flash, {"q": P32, "k": P32, "v": P32, "out": P32, "T": "i32", "scale": "fp32"},
     {"ROWS": 16, "BLOCK": 16, "D": 16},
     "launch(tensor<32 x 16 x f32>, tensor<32 x 16 x f32>, tensor<32 x 16 x f32>, tensor<32 x 16 x f32>, 32, 0.25) "
     "grid(2)"),
)  # fmt: skip


def generic(kernel: triton.JITFunction, signature: dict[str, str], constants: dict[str, int]) -> str:
    """The kernel's TTIR after Triton's own clean-up, in generic form."""
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    compiled = triton.compile(ASTSource(kernel, types, constants), target=GPUTarget("cuda", 90, 32))
    context = ir.context()
    ir.load_dialects(context)
    path = HERE / "scratch.ttir"
    path.write_text(compiled.asm["ttir"])
    module = ir.parse_mlir_module(str(path), context)
    path.unlink()
    module.set_attr("force_generic", ir.builder(context).get_int32_attr(1))
    return module.str_nodebug()


def main() -> None:
    """Write a file for each kernel."""
    for kernel, signature, constants, launch in KERNELS:
        text = generic(kernel, signature, constants)
        (HERE / f"{kernel.fn.__name__}.ttir").write_text(f"// {kernel.fn.__doc__}\n// {launch}\n{text}")


if __name__ == "__main__":
    main()
