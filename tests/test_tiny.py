"""The tiny models are well-formed files with the shapes they promise."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.tiny import CONTROL_TOKENS, byte_alphabet, tiny_vocabulary, write_tiny_gguf


def test_every_variant_reads_back_with_the_public_reader(tiny_variant_path: Path) -> None:
    reader = gguf.GGUFReader(tiny_variant_path)
    names = {tensor.name for tensor in reader.tensors}
    assert {"token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight"} <= names


def test_vocabulary_is_complete_and_not_whole_row_groups() -> None:
    tokens, types, merges = tiny_vocabulary()
    assert len(tokens) == len(types) and len(tokens) % 16
    assert tokens[: len(CONTROL_TOKENS)] == list(CONTROL_TOKENS)
    known = set(tokens)
    assert all({*merge.split(" "), merge.replace(" ", "")} <= known for merge in merges)


def test_byte_alphabet_is_that_of_byte_level_bpe() -> None:
    alphabet = byte_alphabet()
    assert len(set(alphabet)) == 256
    assert (alphabet[0x20], alphabet[0x0A], alphabet[0x41], alphabet[0xAD]) == ("Ġ", "Ċ", "A", "Ń")


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_each_format_is_written_as_named(tmp_path: Path, dtype: str) -> None:
    reader = gguf.GGUFReader(write_tiny_gguf(tmp_path / "model.gguf", dtype=dtype))
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert kinds["blk.1.ffn_down.weight"] == dtype
    assert kinds["blk.1.ffn_norm.weight"] == "F32"


def test_same_seed_writes_the_same_file_and_another_seed_does_not(tmp_path: Path) -> None:
    first, second, third = (
        write_tiny_gguf(tmp_path / f"{index}.gguf", seed=seed).read_bytes() for index, seed in enumerate((1, 1, 2))
    )
    assert first == second
    assert not np.array_equal(np.frombuffer(first, np.uint8), np.frombuffer(third, np.uint8))


def test_some_rows_behind_a_norm_have_a_wide_block_and_some_have_not(tiny_path: Path) -> None:
    reader = gguf.GGUFReader(tiny_path)
    by_name = {tensor.name: tensor for tensor in reader.tensors}
    embedding = gguf.quants.dequantize(by_name["token_embd.weight"].data, by_name["token_embd.weight"].tensor_type)
    normed = embedding / np.sqrt(np.mean(embedding**2, axis=1, keepdims=True)) * by_name["blk.0.attn_norm.weight"].data
    blocks = np.abs(normed.reshape(len(normed), -1, 32))
    is_wide = 4.5 * blocks.max(axis=2) > blocks.sum(axis=2)
    assert 0.1 < is_wide.any(axis=1).mean() < 0.9
