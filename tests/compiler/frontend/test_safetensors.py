"""The safetensors reader: valid files agree with the `safetensors` package; hostile ones get a typed error at once."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from tests.work import num_lines
from unsay.compiler.frontend.safetensors import MAX_HEADER_BYTES, MAX_TENSORS, open_safetensors
from unsay.errors import ModelFileError, ModelNotFoundError, UnsupportedError
from unsay.isa.formats import DType

BIG = (2**31, 2**32, 2**62, 2**63, 2**64 - 1, 10**30)
LINES_TO_OPEN, LINES_PER_BYTE = 400, 2


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    """What a header says of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def file_bytes(header: object, data: bytes = bytes(8), *, num_bytes: int | None = None, pad: bytes = b"") -> bytes:
    """A whole file; `header` is JSON text or what becomes one. num_bytes: the length it claims."""
    text = (header if isinstance(header, bytes) else json.dumps(header).encode()) + pad
    return struct.pack("<Q", len(text) if num_bytes is None else num_bytes) + text + data


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "7 bytes": bytes(7),
    "no header": bytes(8),
    "header longer than the file": file_bytes({"t": entry()})[:-20],
    "header of 4 MiB and a byte": file_bytes(b"{" + b" " * MAX_HEADER_BYTES),
    "a zip file": b"PK\3\4\0\0\0\0" + bytes(2000),
    "a list": file_bytes([1]),
    "a list in a list": file_bytes(b"[[", pad=b"]]"),
    "not JSON": file_bytes(b"{'t': 1}"),
    "text after the object": file_bytes(b"{} {}"),
    "not UTF-8": file_bytes(b'{"\xff": 1}'),
    "half of a surrogate pair": file_bytes(b'{"\\ud800": {"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
    "nested 100000 deep": file_bytes(b'{"t":' + b"[" * 100_000),
    "NaN": file_bytes(b'{"t": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 8]}}'),
    "an integer of 5000 digits": file_bytes(
        b'{"t": {"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,8]}}'
    ),
    "a tensor twice": file_bytes(b'{"t":%s,"t":%s}' % ((json.dumps(entry()).encode(),) * 2)),
    "metadata is a list": file_bytes({"__metadata__": []}, b""),
    "metadata holds a number": file_bytes({"__metadata__": {"format": 1}}, b""),
    "entry is a list": file_bytes({"t": [1]}),
    "entry without offsets": file_bytes({"t": {"dtype": "F32", "shape": [2]}}),
    "entry with more": file_bytes({"t": entry() | {"extra": 1}}),
    "dtype is a number": file_bytes({"t": entry(1)}),
    "dtype is a list": file_bytes({"t": entry(["F32"])}),
    "unknown dtype": file_bytes({"t": entry("F33")}),
    "fp8": file_bytes({"t": entry("F8_E4M3", [8])}),
    "shape is a number": file_bytes({"t": entry(shape=2)}),
    "shape of text": file_bytes({"t": entry(shape=["2"])}),
    "shape of floats": file_bytes({"t": entry(shape=[2.0])}),
    "shape of bools": file_bytes({"t": entry(shape=[True, 2])}),
    "negative size": file_bytes({"t": entry(shape=[-1, -2])}),
    "size 0": file_bytes({"t": entry(shape=[0], offsets=[0, 0])}, b""),
    "9 dims": file_bytes({"t": entry(shape=[1] * 8 + [2])}),
    "100000 dims": file_bytes({"t": entry(shape=[1] * 100_000)}),
    "one offset": file_bytes({"t": entry(offsets=[8])}),
    "three offsets": file_bytes({"t": entry(offsets=[0, 4, 8])}),
    "offsets reversed": file_bytes({"t": entry(offsets=[8, 0])}),
    "offsets wider than the shape": file_bytes({"t": entry(shape=[1])}),
    "offsets narrower than the shape": file_bytes({"t": entry(shape=[3])}),
    "beyond the file": file_bytes({"t": entry()}, bytes(7)),
    "bytes that belong to no tensor": file_bytes({"t": entry()}, bytes(9)),
    "a hole before": file_bytes({"t": entry(offsets=[4, 12])}, bytes(12)),
    "a hole between": file_bytes({"a": entry(), "b": entry(offsets=[12, 20])}, bytes(20)),
    "overlap": file_bytes({"a": entry(), "b": entry(offsets=[4, 12])}, bytes(12)),
    "two on one place": file_bytes({"a": entry(), "b": entry()}),
    "empty name": file_bytes({"": entry()}),
    "name of 257 characters": file_bytes({"t" * 257: entry()}),
    "4097 tensors": file_bytes(
        {f"t{i}": entry(shape=[1], offsets=[4 * i, 4 * i + 4]) for i in range(4097)}, bytes(16388)
    ),
}
for big in BIG:
    HOSTILE |= {
        f"dim {big}": file_bytes({"t": entry(shape=[big])}),
        f"dims {big} twice": file_bytes({"t": entry(shape=[big, big])}),
        f"dims that wrap, {big}": file_bytes({"t": entry(shape=[2**33, 2**31, big])}),
        f"end {big}": file_bytes({"t": entry(shape=[big // 4], offsets=[0, big // 4 * 4])}),
        f"offsets {big}": file_bytes({"t": entry(offsets=[big, big + 8])}),
        f"header of {big} bytes": struct.pack("<Q", big % 2**64) + bytes(100),
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_for_little_work(tmp_path: Path, name: str) -> None:
    path, content = tmp_path / "hostile.safetensors", HOSTILE[name]
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError) as caught:
            open_safetensors(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (1 << 20) + 16 * len(content), peak
    assert len(str(caught.value)) < 400


def test_the_package_refuses_the_same_files_but_for_limits_of_our_own(tmp_path: Path) -> None:
    """What is hostile here is no valid file that we merely do not read."""
    ours = {"fp8", "size 0", "9 dims", "100000 dims", "4097 tensors", "name of 257 characters", "empty name"}
    ours |= {"a tensor twice", "shape of bools", "header of 4 MiB and a byte", "entry with more"}
    path, taken = tmp_path / "hostile.safetensors", set()
    for name, content in HOSTILE.items():
        path.write_bytes(content)
        with contextlib.suppress(SafetensorError), safe_open(path, "np"):
            taken.add(name)
    assert taken <= ours, taken - ours


def test_agrees_with_the_package_on_every_tensor(tmp_path: Path) -> None:
    path, random = tmp_path / "valid.safetensors", np.random.default_rng(0)
    tensors = {
        "a.weight": random.standard_normal((5, 3)).astype(np.float32),
        "b": random.standard_normal(7).astype(np.float16),
        "scalar": np.float32(3.5),
        "deep": random.standard_normal((2, 1, 3, 2)).astype(np.float32),
    }
    save_file({name: np.asarray(value) for name, value in tensors.items()}, path, {"format": "pt"})
    file = open_safetensors(path)
    assert file.metadata == {"format": "pt"}
    with safe_open(path, "np") as oracle:
        assert set(oracle.keys()) == set(file.tensors)
        for name in oracle.keys():  # noqa: SIM118
            wanted, tensor = oracle.get_tensor(name), file.tensors[name]
            assert tensor.shape == wanted.shape
            assert tensor.dtype is (DType.F16 if wanted.dtype == np.float16 else DType.F32)
            assert file.data(name).tobytes() == wanted.tobytes()


def test_bf16_is_read_as_its_bits(tmp_path: Path) -> None:
    path = tmp_path / "b.safetensors"
    path.write_bytes(file_bytes({"t": entry("BF16", [2, 2])}, struct.pack("<4H", 1, 2, 3, 0x3F80)))
    file = open_safetensors(path)
    assert file.tensors["t"].dtype is DType.BF16
    assert file.data("t").view("<u2").tolist() == [[1, 2], [3, 0x3F80]]


def test_the_order_in_the_header_is_not_that_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "o.safetensors"
    header = {"b": entry(offsets=[8, 16]), "a": entry()}
    path.write_bytes(file_bytes(header, struct.pack("<4f", 1, 2, 3, 4), pad=b"   "))
    file = open_safetensors(path)
    assert file.data("a").view("<f4").tolist() == [[1, 2]] and file.data("b").view("<f4").tolist() == [[3, 4]]


def test_as_many_tensors_as_are_read_take_few_steps(tmp_path: Path) -> None:
    path = tmp_path / "many.safetensors"
    header = {f"t{i}": entry(shape=[1], offsets=[4 * i, 4 * i + 4]) for i in range(MAX_TENSORS)}
    path.write_bytes(file_bytes(header, bytes(4 * MAX_TENSORS)))
    assert num_lines(lambda: open_safetensors(path)) < LINES_TO_OPEN + LINES_PER_BYTE * path.stat().st_size


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        open_safetensors(tmp_path / "missing.safetensors")
    with pytest.raises(ModelFileError, match="not a file"):
        open_safetensors(tmp_path)


def test_a_type_that_is_not_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    path.write_bytes(file_bytes({"t": entry("F8_E4M3", [8])}))
    with pytest.raises(UnsupportedError, match=r"'t' is stored as F8_E4M3; supported are F32, F16, BF16"):
        open_safetensors(path)


SMALL = file_bytes({"__metadata__": {"a": "b"}, "t": entry(), "u": entry("F16", [2, 2], [8, 16])}, bytes(16))
MUTATION = st.tuples(
    st.integers(0, len(SMALL) - 1),
    st.one_of(
        st.binary(min_size=1, max_size=1), st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"-", b"9", b",", b"e"])
    ),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(MUTATION, min_size=1, max_size=4), cut=st.integers(0, 12))
def test_a_mutated_file_is_read_or_refused_never_anything_else(
    tmp_path: Path, mutations: list[tuple[int, bytes]], cut: int
) -> None:
    content = bytearray(SMALL)
    for position, replacement in mutations:
        content[position : position + 1] = replacement
    path = tmp_path / "fuzz.safetensors"
    path.write_bytes(bytes(content[: len(content) - cut]))
    with contextlib.suppress(ModelFileError):
        file = open_safetensors(path)
        for name in file.tensors:
            assert file.data(name).size == file.tensors[name].num_bytes
