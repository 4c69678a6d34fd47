"""The GGUF reader: valid files agree with the `gguf` package; hostile ones get a typed error for little work."""

from __future__ import annotations

import contextlib
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiler.frontend.gguf_bytes import (
    BOOL,
    F32,
    I32,
    STRING,
    U8,
    U32,
    array,
    key,
    tensor,
    value,
)
from tests.compiler.frontend.gguf_bytes import gguf as gguf_file
from tests.compiler.frontend.hostile_files import BIG, HOSTILE, LARGEST, arrays, nested
from tests.work import num_lines
from unsay.compiler.frontend.describe import check_vocabulary, model_spec, vocab_spec
from unsay.compiler.frontend.gguf import MAX_ARRAYS, MAX_KEYS, MAX_STRINGS, MAX_TENSORS, open_gguf
from unsay.errors import ModelFileError, ModelNotFoundError, UnsupportedError

MAX_BYTES = 1 << 20
"""Python may allocate this much beyond the size of a file while it is read."""
LINES_TO_OPEN = 400
LINES_PER_BYTE = 4
"""Lines run for a header: no more than these, however much it claims to hold. benchmarks/hostile.py has the times."""


def read_everything(path: Path) -> None:
    """All that `unsay` ever asks of a file's header."""
    file = open_gguf(path)
    for name in file.tensors:
        file.data(name)
    check_vocabulary(file, model_spec(file), vocab_spec(file))


def refusal(tmp_path: Path, content: bytes, read: Callable[[Path], object] = open_gguf) -> ModelFileError:
    """The error for this file; fails if it takes much work or memory to find."""
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError) as caught:
            read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert_little_work(path, read)
    assert peak < MAX_BYTES + len(content), f"{peak} bytes for {caught.value}"
    assert len(str(caught.value)) < 400
    return caught.value


def assert_little_work(path: Path, read: Callable[[Path], object]) -> None:
    """Reading a file, to its end or to an error, takes no more steps than there are bytes to look at."""

    def attempt() -> None:
        with contextlib.suppress(ModelFileError):
            read(path)

    lines = num_lines(attempt)
    assert lines < LINES_TO_OPEN + LINES_PER_BYTE * path.stat().st_size, lines


# valid files


def test_agrees_with_the_gguf_package_on_every_value_and_tensor(tiny_variant_path: Path) -> None:
    ours, oracle = open_gguf(tiny_variant_path), gguf.GGUFReader(tiny_variant_path)
    assert [name for name in oracle.fields if not name.startswith("GGUF.")] == list(ours.keys)
    for name in ours.keys:
        assert decoded(ours, oracle.fields[name]) == oracle.fields[name].contents(), name
    assert [tensor.name for tensor in oracle.tensors] == list(ours.tensors)
    for theirs in oracle.tensors:
        mine = ours.tensors[theirs.name]
        assert mine.dtype.name == theirs.tensor_type.name
        assert list(mine.shape) == [int(dim) for dim in reversed(theirs.shape)]
        assert (mine.offset, mine.num_bytes) == (theirs.data_offset, theirs.n_bytes)
        assert ours.data(theirs.name).tobytes() == theirs.data.tobytes()


def decoded(file: object, field: gguf.ReaderField) -> object:
    """Our value of a field the oracle read, through the accessor for its type."""
    kinds = gguf.GGUFValueType
    if field.types[0] == kinds.ARRAY:
        method = "strings" if field.types[1] == kinds.STRING else "integers"
        return list(getattr(file, method)(field.name))
    method = {kinds.STRING: "text", kinds.BOOL: "boolean", kinds.FLOAT32: "number"}.get(field.types[0], "integer")
    return getattr(file, method)(field.name)


def test_reads_every_scalar_type_and_absent_keys_as_none(tmp_path: Path) -> None:
    path = tmp_path / "scalars.gguf"
    limits = {0: 255, 1: -128, 2: 65535, 3: -32768, 4: 2**32 - 1, 5: -(2**31), 10: 2**64 - 1, 11: -(2**63)}
    keys = [key(f"k{kind}", kind, limit) for kind, limit in limits.items()]
    keys += [key("f32", F32, 0.5), key("f64", 12, 0.1), key("yes", BOOL, 1), key("text", STRING, "é€😀")]
    path.write_bytes(gguf_file(keys))
    file = open_gguf(path)
    assert {kind: file.integer(f"k{kind}") for kind in limits} == limits
    assert (file.number("f32"), file.number("f64"), file.number("k0")) == (0.5, 0.1, 255.0)
    assert (file.boolean("yes"), file.text("text")) == (True, "é€😀")
    assert file.integer("absent") is file.text("absent") is file.strings("absent") is file.integers("absent") is None


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3_read_alike(tmp_path: Path, version: int) -> None:
    path = tmp_path / "v.gguf"
    path.write_bytes(gguf_file([key("a", U8, 1)], [tensor("t", [4, 2])], bytes(32), version=version))
    assert open_gguf(path).tensors["t"].shape == (2, 4)


def test_nested_arrays_up_to_the_limit_are_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "nested.gguf"
    path.write_bytes(gguf_file([nested(3), key("after", U32, 7)]))
    assert open_gguf(path).integer("after") == 7


def test_a_data_section_on_another_alignment(tmp_path: Path) -> None:
    path = tmp_path / "aligned.gguf"
    content = gguf_file(
        [key("general.alignment", U32, 256)], [tensor("t", [8])], struct.pack("<8f", *range(8)), alignment=256
    )
    path.write_bytes(content)
    assert open_gguf(path).data("t").view("<f4").tolist() == [list(map(float, range(8)))]


def test_the_real_model_header_is_walked_once(smollm2: Path) -> None:
    """98,000 strings in two arrays at three lines each, and nothing else that there are many of."""
    file = open_gguf(smollm2)
    num_strings = sum(len(file.strings(f"tokenizer.ggml.{name}") or ()) for name in ("tokens", "merges"))
    assert 3 * num_strings < num_lines(lambda: open_gguf(smollm2)) < 3 * num_strings + 30_000


# hostile files


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused(tmp_path: Path, name: str) -> None:
    refusal(tmp_path, HOSTILE[name])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (gguf_file(version=1), "version 1"),
        (gguf_file(version=4), "version 4"),
        (gguf_file(version=3 << 24), "big-endian"),
        (gguf_file([], [tensor("t", [256], 12)], bytes(256)), "Q4_K"),
        (gguf_file([], [tensor("t", [32], 20)], bytes(256)), "IQ4_NL"),
        (gguf_file([], [tensor("t", [32], 77)], bytes(256)), "77"),
        (gguf_file([], [tensor("t", [32], 26)], bytes(256)), "I32"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, content: bytes, named: str) -> None:
    error = refusal(tmp_path, content)
    assert isinstance(error, UnsupportedError) and named in str(error)


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        (gguf_file([key(f"k{index}", U8, 0) for index in range(MAX_KEYS + 1)]), MAX_KEYS),
        (gguf_file([], [tensor(f"t{index}", [1]) for index in range(MAX_TENSORS + 1)]), MAX_TENSORS),
        (gguf_file([array("k", STRING, [""] * (MAX_STRINGS + 1))]), MAX_STRINGS),
        (gguf_file([arrays("k", MAX_ARRAYS + 1)]), MAX_ARRAYS),
        (gguf_file([arrays("a", MAX_ARRAYS), arrays("b", 1)]), 0),
    ],
    ids=["keys", "tensors", "strings", "arrays", "arrays in two keys"],
)
def test_a_large_file_that_states_the_truth_is_bounded_too(tmp_path: Path, content: bytes, limit: int) -> None:
    assert str(limit) in str(refusal(tmp_path, content))


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_header_there_may_be_is_walked_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / "large.gguf"
    path.write_bytes(LARGEST[name])
    assert_little_work(path, open_gguf)


def test_truncation_anywhere_in_the_header_is_refused(tmp_path: Path, tiny_path: Path) -> None:
    whole = tiny_path.read_bytes()
    header = min(tensor.offset for tensor in open_gguf(tiny_path).tensors.values())
    for size in [*range(0, header, 1000), *range(header - 64, header + 1)]:
        refusal(tmp_path, whole[:size])


def test_truncation_of_the_real_header_is_refused(tmp_path: Path, smollm2: Path) -> None:
    """Every 10,000th byte; every 1,000th, which takes half a minute, is in benchmarks/hostile.py."""
    header = min(tensor.offset for tensor in open_gguf(smollm2).tensors.values())
    with smollm2.open("rb") as file:
        whole = file.read(header)
    path = tmp_path / "truncated.gguf"
    path.write_bytes(whole)
    for size in range(header // 10_000 * 10_000, -1, -10_000):
        os.truncate(path, size)
        with pytest.raises(ModelFileError):
            open_gguf(path)


@pytest.mark.parametrize(
    ("accessor", "content"),
    [
        ("integer", key("k", STRING, "1")),
        ("integer", key("k", F32, 1.0)),
        ("number", key("k", BOOL, 1)),
        ("boolean", key("k", U8, 1)),
        ("boolean", key("k", BOOL, 2)),
        ("text", array("k", STRING, ["a"])),
        ("text", key("k", STRING, b"\xff")),
        ("strings", array("k", I32, [1])),
        ("strings", array("k", STRING, [b"\xff"])),
        ("strings", key("k", STRING, "a")),
        ("integers", array("k", STRING, ["1"])),
        ("integers", array("k", F32, [1.0])),
    ],
)
def test_a_value_of_another_type_is_refused(tmp_path: Path, accessor: str, content: bytes) -> None:
    error = refusal(tmp_path, gguf_file([content]), lambda path: getattr(open_gguf(path), accessor)("k"))
    assert "k " in str(error)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        open_gguf(tmp_path / "missing.gguf")
    with pytest.raises(ModelFileError, match="not a file"):
        open_gguf(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="not a file"):
        open_gguf(tmp_path / "pipe")


# fuzzing


def small_model() -> bytes:
    """A valid file of a few hundred bytes with every kind of thing in it."""
    keys = [
        key("general.architecture", STRING, "llama"),
        key("llama.block_count", U32, 1),
        key("llama.embedding_length", U32, 32),
        key("llama.attention.head_count", U32, 2),
        key("llama.feed_forward_length", U32, 32),
        key("llama.context_length", U32, 64),
        key("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        key("tokenizer.ggml.model", STRING, "gpt2"),
        array("tokenizer.ggml.tokens", STRING, ["a", "b"]),
        array("tokenizer.ggml.token_type", I32, [1, 1]),
        array("tokenizer.ggml.merges", STRING, ["a b"]),
        key("tokenizer.ggml.eos_token_id", U32, 1),
        nested(2),
    ]
    tensors = [tensor("token_embd.weight", [32, 2], 8), tensor("output_norm.weight", [32], offset=96)]
    return gguf_file(keys, tensors, bytes(96 + 128))


def test_the_small_model_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    path.write_bytes(small_model())
    read_everything(path)


MUTATION = st.tuples(
    st.integers(0, len(small_model()) - 1),
    st.one_of(
        st.binary(min_size=1, max_size=1),
        st.sampled_from([struct.pack("<Q", big) for big in (*BIG, 0, 2**31 - 1, 2**63 - 1)]),
        st.sampled_from([struct.pack("<I", kind) for kind in range(14)]),
    ),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(MUTATION, min_size=1, max_size=4), cut=st.integers(0, len(small_model())))
def test_a_mutated_file_is_read_or_refused_never_anything_else(
    tmp_path: Path, mutations: list[tuple[int, bytes]], cut: int
) -> None:
    content = bytearray(small_model())
    for position, replacement in mutations:
        content[position : position + len(replacement)] = replacement
    fuzz_one(tmp_path, bytes(content[: len(content) - cut % 16]))


def fuzz_one(directory: Path, content: bytes) -> None:
    """The fuzz target: reading these bytes must end in a value or a ModelFileError, for little work."""
    path = directory / "fuzz.gguf"
    path.write_bytes(content)
    assert_little_work(path, read_everything)


def test_values_survive_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "array.gguf"
    numbers = np.random.default_rng(0).integers(-(2**31), 2**31, 1000).tolist()
    words = ["", "a", "é" * 100, "\0"]
    path.write_bytes(gguf_file([array("numbers", I32, numbers), array("words", STRING, words)]))
    file = open_gguf(path)
    assert file.integers("numbers") == tuple(numbers) and file.strings("words") == tuple(words)
    assert value(U8, 1) == b"\1"
