"""Model shapes and tensor types for compiler tests, without any file."""

from unsay.compiler.ir.types import TensorType
from unsay.image import ModelSpec
from unsay.isa.formats import DType

SMOLLM2 = ModelSpec(
    name="smollm2", architecture="llama", num_layers=30, embedding_size=576, num_heads=9, num_kv_heads=3, head_dim=64,
    ffn_size=1536, vocab_size=49152, context_length=8192, norm_eps=1e-5, rope_base=100000.0,
)  # fmt: skip
TINY = SMOLLM2._replace(
    name="tiny", num_layers=2, embedding_size=64, num_heads=4, num_kv_heads=2, head_dim=32, ffn_size=96,
    vocab_size=293, context_length=64,
)  # fmt: skip
TINY_QWEN2 = TINY._replace(architecture="qwen2", rope_pairing="halves")


def tensor_types(
    spec: ModelSpec, dtype: DType = DType.Q4_1, embedding: DType = DType.Q8_0, tied: bool = True
) -> dict[str, TensorType]:
    """The tensors a file of this shape has, by GGUF name."""
    query, key, width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim, spec.embedding_size
    types = {
        "token_embd.weight": TensorType((spec.vocab_size, width), embedding),
        "output_norm.weight": TensorType((width,), DType.F32),
    }
    if not tied:
        types["output.weight"] = TensorType((spec.vocab_size, width), dtype)
    matrices = {
        "attn_q": (query, width), "attn_k": (key, width), "attn_v": (key, width), "attn_output": (width, query),
        "ffn_gate": (spec.ffn_size, width), "ffn_up": (spec.ffn_size, width), "ffn_down": (width, spec.ffn_size),
    }  # fmt: skip
    for block in (f"blk.{layer}" for layer in range(spec.num_layers)):
        types |= {f"{block}.{name}.weight": TensorType(shape, dtype) for name, shape in matrices.items()}
        types |= {f"{block}.{name}.weight": TensorType((width,), DType.F32) for name in ("attn_norm", "ffn_norm")}
        if spec.architecture == "qwen2":
            biases = {"attn_q": query, "attn_k": key, "attn_v": key}
            types |= {f"{block}.{name}.bias": TensorType((size,), DType.F32) for name, size in biases.items()}
    return types
