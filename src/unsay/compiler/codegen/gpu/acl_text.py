"""A step for Ascend NPUs: C++ that runs it as single operators of ACL. Never executed.

The file has one function, and in its head what each buffer holds. Weights are dense f32 in the row order of the packed
file, activations f32, keys and values f16 of one sequence: the arithmetic is ACL's own, so docs/numerics.md does not
hold. Attention goes through PromptFlashAttention, RoPE through RotaryPositionEmbedding, SiLU times through SwiGlu.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from unsay.compiler.codegen.backends import Step
from unsay.errors import ProgramError, UnsupportedError
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, Channel, Region
from unsay.isa.program import Instruction


def acl_source(step: Step) -> str:
    """The C++ text. Raises UnsupportedError naming an instruction that has no ACL operator here, or a KV format."""
    if step.spec.kv_format != "f16":
        raise UnsupportedError(f"ACL's attention takes halves, not {step.spec.kv_format}: compile with --kv f16")
    writer = _Writer()
    for index, instruction in enumerate(step.program):
        name = instruction.row.name
        writer.where = f"instruction {index} ({name})"
        if name == "HALT":
            break
        if name not in _HANDLERS:
            raise UnsupportedError(f"{writer.where}: no ACL operator does this here")
        if name != "TENSOR":
            writer.lines.append(f"  // {index}: {name}")
        _HANDLERS[name](writer, instruction)
    tables = [f"//   {title}[{place}]  {what}" for title, rows in writer.tables() for place, what in enumerate(rows)]
    head = f"// {step.spec.name}: a step of up to {step.max_tokens} tokens of one sequence. Its device buffers:"
    return "\n".join([head, *tables, _HEAD, *writer.lines, "  return ACL_SUCCESS;", "}", ""])


@dataclass(frozen=True, slots=True)
class _Tensor:
    """As a register names it: a C++ expression for its address, rows as a C++ expression, width."""

    data: str
    rows: str
    width: int

    def __str__(self) -> str:
        return f"floats({self.data}, {{{self.rows}, {self.width}}})"


@dataclass(slots=True)
class _Writer:
    """Lines of the function so far, and what each buffer is for."""

    lines: list[str] = field(default_factory=list[str])
    tensors: dict[int, _Tensor] = field(default_factory=dict[int, _Tensor])
    weights: dict[str, int] = field(default_factory=dict[str, int])
    activations: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    scratch: list[str] = field(default_factory=list[str])
    where: str = ""

    def tables(self) -> list[tuple[str, list[str]]]:
        """(array, what each of its buffers holds)."""
        activations = [f"f32 {size}, a step's {offset}" for offset, (_, size) in self.activations.items()]
        return [("weights", list(self.weights)), ("activations", activations), ("scratch", self.scratch)]

    def weight(self, what: str) -> str:
        """The buffer of a weight, described so that equal ones are one."""
        return f"memory.weights[{self.weights.setdefault(what, len(self.weights))}]"

    def activation(self, offset: int, size: int) -> str:
        """The buffer of what begins at this offset of GLOBAL; it is as large as the largest that does."""
        place, largest = self.activations.get(offset, (len(self.activations), 0))
        self.activations[offset] = (place, max(size, largest))
        return f"memory.activations[{place}]"

    def temporary(self, what: str) -> str:
        """A scratch buffer; equal ones are one, as no value in it outlives an instruction."""
        if what not in self.scratch:
            self.scratch.append(what)
        return f"memory.scratch[{self.scratch.index(what)}]"

    def tensor(self, register: int) -> _Tensor:
        """What a register names."""
        if register not in self.tensors:
            raise ProgramError(f"{self.where}: R{register} names no tensor")
        return self.tensors[register]

    def run(self, kind: str, inputs: list[str], outputs: list[str], attributes: str = "") -> None:
        """One operator."""
        arguments = f'"{kind}", {{{", ".join(inputs)}}}, {{{", ".join(outputs)}}}, Attributes(){attributes}'
        self.call(f"run({arguments}, stream)")

    def call(self, text: str) -> None:
        """A call that gives back an aclError."""
        self.lines.append(f"  if (const aclError error = {text}) {{ return error; }}")


def _tensor(writer: _Writer, op: Instruction) -> None:
    dims = tuple(op.integer(f"dim{axis}") for axis in range(op.integer("rank")))
    offset, region = op.integer("offset"), Region(op.flags & 3)
    rows = "tokens" if op.has("DIM_TOKENS") else "rows" if op.has("DIM_ROWS") else str(dims[0])
    if region is Region.PERSISTENT:
        data = writer.weight(f"f32 [{', '.join(map(str, dims))}], PERSISTENT offset {offset}")
    elif region is Region.TEMPORAL:
        data = "memory.logits"
    else:
        data = writer.activation(offset, math.prod(dims))
    writer.tensors[op.registers[0]] = _Tensor(data, rows, math.prod(dims[1:]))


def _stream(writer: _Writer, op: Instruction) -> None:
    if op.integer("channel") == Channel.LOGITS:
        return
    if op.integer("channel") != Channel.EMBED:
        raise UnsupportedError(f"{writer.where}: channel {op.integer('channel')} is not tensor work")
    out, table = writer.tensor(op.registers[0]), writer.tensor(op.registers[1])
    writer.run("Gather", [str(table), "integers(memory.token_ids, {tokens})"], [str(out)])


def _norm(writer: _Writer, op: Instruction) -> None:
    if op.has("LAYER"):
        raise UnsupportedError(f"{writer.where}: layer norm has no ACL operator here")
    out, x, gamma = (writer.tensor(register) for register in op.registers[:3])
    source = str(x)
    if op.has("ROWS"):
        source = f"floats({writer.temporary(f'f32 [rows, {x.width}]')}, {{rows, {x.width}}})"
        writer.run("Gather", [str(x), "integers(memory.logit_rows, {rows})"], [source])
    deviation = f"floats({writer.temporary('f32 [tokens]')}, {{{out.rows}, 1}})"
    scale = f"floats({gamma.data}, {{{x.width}}})"
    writer.run("RmsNorm", [source, scale], [str(out), deviation], f'.real("epsilon", {float(op.field("eps")):.9g}f)')


def _product(writer: _Writer, x: _Tensor, w: _Tensor, out: _Tensor, bias: str | None, accumulate: bool) -> None:
    """out = W x (+ bias) (+ out)."""
    result = out
    if accumulate:
        result = _Tensor(writer.temporary(f"f32 [tokens, {out.width}]"), out.rows, out.width)
    inputs = [str(x), str(w), *([] if bias is None else [f"floats({bias}, {{{out.width}}})"])]
    writer.run("MatMulV2", inputs, [str(result)], '.flag("transpose_x1", false).flag("transpose_x2", true)')
    if accumulate:
        writer.run("Add", [str(out), str(result)], [str(out)])


def _matmul(writer: _Writer, op: Instruction) -> None:
    out, x, w = (writer.tensor(register) for register in op.registers[:3])
    bias = None if op.registers[3] == NO_REGISTER else writer.tensor(op.registers[3]).data
    _product(writer, x, w, out, bias, op.has("ACCUMULATE"))


def _qkv(writer: _Writer, op: Instruction) -> None:
    out, x, w, table = (writer.tensor(register) for register in op.registers)
    offset = op.integer("bias")
    bias = None if offset == NO_OFFSET else writer.weight(f"f32 [{out.width}], PERSISTENT offset {offset}")
    _product(writer, x, w, out, bias, accumulate=False)
    num_heads, num_kv_heads, dim = (op.integer(name) for name in ("num_heads", "num_kv_heads", "head_dim"))
    _turn(writer, out, table, num_heads + num_kv_heads, dim, 0)


def _rope(writer: _Writer, op: Instruction) -> None:
    x, table = writer.tensor(op.registers[0]), writer.tensor(op.registers[2])
    _turn(writer, x, table, *(op.integer(name) for name in ("num_heads", "head_dim", "column")))


def _turn(writer: _Writer, x: _Tensor, table: _Tensor, num_heads: int, dim: int, column: int) -> None:
    """Rotate adjacent pairs of heads from `column` on, in place: out of the rows, turned, and back."""
    size = num_heads * dim
    before, after = (writer.temporary(f"f32 [tokens, {size}], {name} RoPE") for name in ("before", "after"))
    writer.call(f"copy_columns({before}, 0, {size}, {x.data}, {column}, {x.width}, {size}, tokens, stream)")
    angles: list[str] = []
    for name in ("cos", "sin"):
        source = writer.weight(f"f32 [context, {dim}], each {name} of the table at {table.data} twice")
        rows = f"floats({writer.temporary(f'f32 [tokens, {dim}], {name}')}, {{1, tokens, 1, {dim}}})"
        writer.run("Gather", [f"floats({source}, {{context, {dim}}})", "integers(memory.positions, {tokens})"], [rows])
        angles.append(rows)
    shape = f"{{1, tokens, {num_heads}, {dim}}}"
    inputs = [f"floats({before}, {shape})", *angles]
    writer.run("RotaryPositionEmbedding", inputs, [f"floats({after}, {shape})"], '.integer("mode", 1)')
    writer.call(f"copy_columns({x.data}, {column}, {x.width}, {after}, 0, {size}, {size}, tokens, stream)")


def _attn(writer: _Writer, op: Instruction) -> None:
    out, q, k, v = (writer.tensor(register) for register in op.registers)
    num_heads, num_kv_heads, dim = (op.integer(name) for name in ("num_heads", "num_kv_heads", "head_dim"))
    layer, width, kv_width = op.integer("layer"), num_heads * dim, num_kv_heads * dim
    query, result = (writer.temporary(f"f16 [tokens, {width}], {name}") for name in ("queries", "attended"))
    caches = [f"rows_of(memory.{name}[{layer}], past, {kv_width})" for name in ("keys", "values")]
    for source, goal, column, size in (
        (q, query, "q_column", width),
        (k, caches[0], "k_column", kv_width),
        (v, caches[1], "v_column", kv_width),
    ):
        flat = writer.temporary(f"f32 [tokens, {size}]")
        start = op.integer(column)
        writer.call(f"copy_columns({flat}, 0, {size}, {source.data}, {start}, {source.width}, {size}, tokens, stream)")
        writer.call(f"cast(floats({flat}, {{tokens, {size}}}), halves({goal}, {{tokens, {size}}}), stream)")
    attended = f"halves({result}, {{1, tokens, {width}}})"
    inputs = [f"halves({query}, {{1, tokens, {width}}})"]
    inputs += [f"halves(memory.{name}[{layer}], {{1, past + tokens, {kv_width}}})" for name in ("keys", "values")]
    inputs += ["absent()", "Tensor{memory.mask, ACL_BOOL, {tokens, past + tokens}}"]
    numbers = f'.integer("num_heads", {num_heads}).integer("num_key_value_heads", {num_kv_heads})'
    scale = f'.real("scale_value", {float(op.field("scale")):.9g}f).text("input_layout", "BSH")'
    writer.run("PromptFlashAttention", inputs, [attended], numbers + scale)
    writer.call(f"cast({attended}, floats({out.data}, {{1, tokens, {width}}}), stream)")


def _ffn(writer: _Writer, op: Instruction) -> None:
    out, x, gate_up, down = (writer.tensor(register) for register in op.registers)
    size = op.integer("ffn_size")
    both = _Tensor(writer.temporary(f"f32 [tokens, {2 * size}], gate then up"), x.rows, 2 * size)
    hidden = _Tensor(writer.temporary(f"f32 [tokens, {size}], hidden"), x.rows, size)
    split = writer.weight(f"f32 [{2 * size}, {x.width}], {gate_up.data} with all rows of gate before those of up")
    _product(writer, x, _Tensor(split, str(2 * size), x.width), both, None, accumulate=False)
    writer.run("SwiGlu", [str(both)], [str(hidden)], '.integer("dim", -1)')
    _product(writer, hidden, down, out, None, accumulate=True)


def _silu_mul(writer: _Writer, op: Instruction) -> None:
    out, gate, up = (writer.tensor(register) for register in op.registers[:3])
    silu = _Tensor(writer.temporary(f"f32 [tokens, {out.width}], silu"), out.rows, out.width)
    writer.run("Swish", [str(gate)], [str(silu)], '.real("scale", 1.0f)')
    writer.run("Mul", [str(silu), str(up)], [str(out)])


def _quant(writer: _Writer, op: Instruction) -> None:
    """Activations stay f32: their values go where the quantised ones would."""
    out, x = writer.tensor(op.registers[0]), writer.tensor(op.registers[1])
    writer.call(f"copy_columns({out.data}, 0, {out.width}, {x.data}, 0, {x.width}, {x.width}, {out.rows}, stream)")


def _add(writer: _Writer, op: Instruction) -> None:
    out, a, b = (writer.tensor(register) for register in op.registers[:3])
    writer.run("Add", [str(a), str(b)], [str(out)])


_HANDLERS: dict[str, Callable[[_Writer, Instruction], None]] = {
    "TENSOR": _tensor,
    "STREAM": _stream,
    "NORM": _norm,
    "MATMUL": _matmul,
    "QKV": _qkv,
    "ROPE": _rope,
    "ATTN": _attn,
    "FFN": _ffn,
    "SILU_MUL": _silu_mul,
    "QUANT": _quant,
    "ADD": _add,
}

_HEAD = """\

#include <acl/acl.h>
#include <acl/acl_op_compiler.h>

#include <cstdint>
#include <vector>

// Device memory. token_ids, positions: i32 [tokens]; logit_rows: i32 [rows]; mask: bool [tokens][past + tokens], true
// where a token may not look; keys, values: an f16 [context][kv heads * head size] for each layer; logits: f32.
struct Memory {
  void *const *weights, *const *activations, *const *scratch, *const *keys, *const *values;
  void *token_ids, *positions, *logit_rows, *mask, *logits;
};

namespace {

struct Tensor {
  void *data;
  aclDataType type;
  std::vector<int64_t> dims;

  size_t num_bytes() const {
    size_t count = aclDataTypeSize(type);
    for (const int64_t dim : dims) { count *= size_t(dim); }
    return count;
  }
};

Tensor floats(void *data, std::vector<int64_t> dims) { return {data, ACL_FLOAT, dims}; }
Tensor halves(void *data, std::vector<int64_t> dims) { return {data, ACL_FLOAT16, dims}; }
Tensor integers(void *data, std::vector<int64_t> dims) { return {data, ACL_INT32, dims}; }
Tensor absent() { return {nullptr, ACL_DT_UNDEFINED, {}}; }
void *rows_of(void *halves, int64_t row, int64_t width) { return static_cast<aclFloat16 *>(halves) + row * width; }

// The attributes of one operator.
class Attributes {
 public:
  Attributes() : attributes_(aclopCreateAttr()) {}
  ~Attributes() { aclopDestroyAttr(attributes_); }
  Attributes(const Attributes &) = delete;
  Attributes &operator=(const Attributes &) = delete;
  Attributes &flag(const char *name, bool value) { return set(aclopSetAttrBool(attributes_, name, value)); }
  Attributes &integer(const char *name, int64_t value) { return set(aclopSetAttrInt(attributes_, name, value)); }
  Attributes &real(const char *name, float value) { return set(aclopSetAttrFloat(attributes_, name, value)); }
  Attributes &text(const char *name, const char *value) { return set(aclopSetAttrString(attributes_, name, value)); }
  const aclopAttr *get() const { return attributes_; }
  aclError error() const { return error_; }

 private:
  Attributes &set(aclError error) {
    error_ = error_ ? error_ : error;
    return *this;
  }
  aclopAttr *attributes_;
  aclError error_ = ACL_SUCCESS;
};

// Descriptions and buffers of tensors, as long as an operator needs them.
class Operands {
 public:
  explicit Operands(const std::vector<Tensor> &tensors) {
    for (const Tensor &t : tensors) {
      const size_t num_bytes = t.data ? t.num_bytes() : 0;
      descriptions.push_back(aclCreateTensorDesc(t.type, int(t.dims.size()), t.dims.data(), ACL_FORMAT_ND));
      buffers.push_back(aclCreateDataBuffer(t.data, num_bytes));
    }
  }
  ~Operands() {
    for (const aclTensorDesc *description : descriptions) { aclDestroyTensorDesc(description); }
    for (const aclDataBuffer *buffer : buffers) { aclDestroyDataBuffer(buffer); }
  }
  Operands(const Operands &) = delete;
  Operands &operator=(const Operands &) = delete;
  std::vector<aclTensorDesc *> descriptions;
  std::vector<aclDataBuffer *> buffers;
};

aclError run(const char *kind, const std::vector<Tensor> &inputs, const std::vector<Tensor> &outputs,
             const Attributes &attributes, aclrtStream stream) {
  if (attributes.error()) { return attributes.error(); }
  const Operands in(inputs), out(outputs);
  return aclopCompileAndExecute(kind, int(inputs.size()), in.descriptions.data(), in.buffers.data(),
                                int(outputs.size()), out.descriptions.data(), out.buffers.data(), attributes.get(),
                                ACL_ENGINE_SYS, ACL_COMPILE_SYS, nullptr, stream);
}

aclError cast(const Tensor &from, const Tensor &to, aclrtStream stream) {
  const Operands in({from}), out({to});
  return aclopCast(in.descriptions[0], in.buffers[0], out.descriptions[0], out.buffers[0], 0, stream);
}

// Columns of f32 rows, `size` of them, to columns of other rows.
aclError copy_columns(void *to, int64_t to_column, int64_t to_width, void *from, int64_t from_column,
                      int64_t from_width, int64_t size, int64_t rows, aclrtStream stream) {
  return aclrtMemcpy2dAsync(static_cast<float *>(to) + to_column, size_t(to_width) * 4,
                            static_cast<float *>(from) + from_column, size_t(from_width) * 4, size_t(size) * 4,
                            size_t(rows), ACL_MEMCPY_DEVICE_TO_DEVICE, stream);
}

}  // namespace

// `tokens` tokens that follow `past` others; the logits of `rows` of them.
extern "C" aclError unsay_step(const Memory &memory, int64_t tokens, int64_t rows, int64_t past, int64_t context,
                               aclrtStream stream) {
  (void)context;\
"""
