"""The opcodes of the AVM: one table, read by assembler, machine, executors, lowering and docs.

An instruction is 32 bytes, little-endian:

    0       1      2   3   4   5   6                          32
    opcode  flags  rd  ra  rb  rc  payload (26 bytes, by opcode)

0x00..0x0F are the core and never change; 0x10.. is the extension page. An encoding once given is never reused.
A register field is 0..15, or 0xFF where the instruction does not use it. R0 reads zero.
Arithmetic of the tensor instructions is defined bit for bit in docs/numerics.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NO_REGISTER = 0xFF
NUM_REGISTERS = 16
INSTRUCTION_BYTES = 32
NO_OFFSET = 0xFFFF_FFFF_FFFF_FFFF
"""An `offset` field that names nothing: no bias, or "the machine chooses"."""


class Region(IntEnum):
    """Top nibble of a 128-bit address."""

    GLOBAL = 0x0
    TEMPORAL = 0x1
    PERSISTENT = 0x2
    KV_CACHE = 0x3


class Channel(IntEnum):
    """What a STREAM instruction moves data to or from."""

    EMBED = 0
    LOGITS = 1
    SAMPLE = 2
    EMIT = 3
    INJECT = 4


class Peripheral(IntEnum):
    """What a SENSE instruction reads, without blocking."""

    USER_INPUT = 0
    VAD = 1
    TIMER = 2
    GUARD = 3


class Dim0(IntEnum):
    """What the first dimension of a tensor counts, where it is not fixed."""

    FIXED = 0
    TOKENS = 1
    ROWS = 2


class Opcode(NamedTuple):
    """One row. `registers`: roles of rd, ra, rb, rc, "" where unused, "x?" where optional. `fields`: payload as
    (name, struct code); `flags`: name of each bit from bit 0. `tensor`: runs inside the native step."""

    code: int
    name: str
    registers: tuple[str, str, str, str]
    fields: tuple[tuple[str, str], ...]
    flags: tuple[str, ...]
    tensor: bool
    doc: str


_TENSOR_FIELDS = (
    ("dtype", "B"), ("rank", "B"), ("dim0", "I"), ("dim1", "I"), ("dim2", "I"), ("dim3", "I"), ("offset", "Q"),
)  # fmt: skip
_ATTN_FIELDS = (
    ("layer", "H"), ("num_heads", "H"), ("num_kv_heads", "H"), ("head_dim", "H"), ("scale", "f"),
    ("q_column", "I"), ("k_column", "I"), ("v_column", "I"),
)  # fmt: skip
_QKV_FIELDS = (
    ("num_heads", "H"), ("num_kv_heads", "H"), ("head_dim", "H"), ("bias", "Q"),
)  # fmt: skip
_ROPE_FIELDS = (("num_heads", "H"), ("head_dim", "H"), ("column", "I"))
_FFN_FIELDS = (("ffn_size", "I"), ("hidden", "Q"), ("hidden_dtype", "B"))

OPCODES: tuple[Opcode, ...] = (
    Opcode(0x00, "HALT", ("", "", "", ""), (), (), False, "stop this context"),
    Opcode(0x01, "TENSOR", ("tensor", "", "", ""), _TENSOR_FIELDS,
           ("REGION0", "REGION1", "DIM_TOKENS", "DIM_ROWS", "SPARSE"), True,
           "allocate a tensor in GLOBAL, or name one in PERSISTENT (bits 0-1: region); DIM_TOKENS: dim0 is this step's "
           "tokens, DIM_ROWS: its logit rows (the field then holds the capacity); rd = its address"),
    Opcode(0x02, "ATTN", ("out", "q", "k", "v"), _ATTN_FIELDS, (), True,
           "append k, v of every token to the KV cache of its context (layer `layer`), then attend; q, k, v start at the "
           "columns given, so one packed tensor may serve as all three; out F32, Q8A or Q16 [T, H*D]"),
    Opcode(0x03, "STREAM", ("out?", "in?", "", ""), (("channel", "B"),), (), True,
           "EMBED: out[T, E] = rows of `in` for this step's tokens; LOGITS: `in` is the step's result; "
           "SAMPLE: out = token chosen from the logits, and appended to this context; EMIT: hand the token in `in` to the caller; "
           "INJECT: append the TEMPORAL record `in` to this context"),
    Opcode(0x04, "FORK", ("child", "", "", ""), (("label", "Q"),), (), False,
           "clone this context copy-on-write; the child starts at `label`; rd = its id, and 0 in the child"),
    Opcode(0x05, "ABORT", ("", "context", "payload", ""), (), (), False,
           "roll context ra (0: this one) back to the nearest checkpoint at or before the target in TEMPORAL record rb, truncate to "
           "the target, inject the record's tokens"),
    Opcode(0x06, "SENSE", ("event", "", "", ""), (("peripheral", "B"),), (), False,
           "non-blocking read: rd = address of a TEMPORAL record, or zero"),
    Opcode(0x07, "NORM", ("out", "x", "gamma", "beta?"), (("eps", "f"),), ("LAYER", "ROWS"), True,
           "RMS norm (LAYER: layer norm) of each row; ROWS: only of the step's logit rows; out F32, Q8A, Q8W or Q16"),
    Opcode(0x08, "FFN", ("out", "x", "gate_up", "down"), _FFN_FIELDS, (), True,
           "out += W_down (silu(W_gate x) * (W_up x)); gate_up holds row groups of gate and up in turn; `hidden` is the "
           "GLOBAL offset of the [T, F] intermediate of type `hidden_dtype`"),
    Opcode(0x10, "JUMP", ("", "", "", ""), (("label", "Q"),), (), False, "continue at `label`"),
    Opcode(0x11, "BRANCH", ("", "condition", "", ""), (("label", "Q"),), ("IF_ZERO",), False,
           "continue at `label` if ra is not zero (IF_ZERO: if it is)"),
    Opcode(0x12, "STEP", ("logits", "", "", ""), (), (), False,
           "run the linked model over this context's pending tokens; rd = address of the logits"),
    Opcode(0x13, "LOAD", ("out", "", "", ""), (("low", "Q"), ("high", "Q")), (), False, "rd = 128-bit constant"),
    Opcode(0x14, "CHECKPOINT", ("out?", "", "", ""), (), (), False,
           "record registers, pc and KV root at the current length; rd = that length"),
    Opcode(0x15, "COMPARE", ("out", "a", "b", ""), (), ("LESS", "EQUAL"), False,
           "rd = 1 if ra < rb (LESS) or ra == rb (EQUAL), unsigned, else 0"),
    Opcode(0x16, "MATMUL", ("out", "x", "weight", "bias?"), (), ("ACCUMULATE",), True,
           "out = W x (+ bias); ACCUMULATE: out = out + that; x Q8A or Q8W for a quantised W, F32 for a float W, Q16 for any"),
    Opcode(0x17, "ROPE", ("x", "x", "table", ""), _ROPE_FIELDS, (), True,
           "rotate, in place, pairs (2i, 2i+1) of `num_heads` heads from `column`, by each token's position"),
    Opcode(0x18, "QKV", ("out", "x", "weight", "table"), _QKV_FIELDS, (), True,
           "out [T, (H+2K)*D] = W x (+ bias, a PERSISTENT offset or NO_OFFSET), q and k heads rotated as by ROPE"),
    Opcode(0x19, "QUANT", ("out", "x", "", ""), (), (), True, "out Q8A or Q8W = x F32, quantised in blocks of 32; out Q16: whole rows"),
    Opcode(0x1A, "SILU_MUL", ("out", "gate", "up", ""), (), (), True, "out = silu(gate) * up; out F32, Q8A, Q8W or Q16"),
    Opcode(0x1B, "ADD", ("out", "a", "b", ""), (), (), True, "out = a + b, F32 [T, N]"),
    Opcode(0x1C, "IADD", ("out", "a", "b", ""), (), (), False, "rd = ra + rb modulo 2^128"),
)  # fmt: skip

BY_CODE: dict[int, Opcode] = {row.code: row for row in OPCODES}
BY_NAME: dict[str, Opcode] = {row.name: row for row in OPCODES}
assert len(BY_CODE) == len(BY_NAME) == len(OPCODES)
