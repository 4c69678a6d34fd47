"""The reference executor: one answer whatever the chunks, the company and the pages; parts against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from tests.images import make_batch, plain_image, run
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout
from unsay.isa.opcodes import OPCODES
from unsay.runtime import attention
from unsay.runtime.reference import HANDLERS, ReferenceExecutor


@pytest.fixture(scope="module")
def image(tiny_variant_path):
    return plain_image(tiny_variant_path)


@pytest.fixture
def executor(image):
    return ReferenceExecutor(image, np.zeros((16, image.manifest.spec.kv_layout.page_bytes), np.uint8), 1)


IDS = [int(x) for x in np.random.default_rng(1).integers(0, 290, 40)]


def used_rows(executor, page, num_tokens):
    """The bytes of the first rows of a page, and nothing of what follows them."""
    layout = executor.spec.kv_layout
    elements = executor._unit.kv_memory[page].view({2: np.uint16, 4: np.uint32}[layout.element_bytes])
    size = layout.head_dim * 16
    parts = elements[: layout.used_bytes // layout.element_bytes].reshape(-1, 2, size)
    keys = parts[:, 0].reshape(-1, layout.head_dim, 16)[..., :num_tokens]
    return keys.copy(), parts[:, 1].reshape(-1, 16, layout.head_dim)[:, :num_tokens].copy()


def test_logits_and_rows_do_not_depend_on_chunks_company_or_pages(executor):
    whole = run(executor, make_batch([(0, IDS)], [[0, 1, 2]], list(range(8, 40))))
    executor.run(make_batch([(0, IDS[:7])], [[9, 4, 6]], []))
    executor.run(make_batch([(0, IDS[5:9]), (7, IDS[7:20])], [[12, -1, -1], [9, 4, 6]], [0]))
    chunked = run(executor, make_batch([(20, IDS[20:]), (0, IDS[:3])], [[9, 4, 6], [13, -1, -1]], list(range(20))))
    assert np.array_equal(whole[12:], chunked)
    assert whole.dtype == np.float32 and whole.shape == (32, executor.spec.vocab_size)
    assert np.isfinite(whole).all() and whole.std() > 0.1
    for ours, theirs, rows in ((0, 9, 16), (1, 4, 16), (2, 6, 8)):
        for a, b in zip(used_rows(executor, ours, rows), used_rows(executor, theirs, rows), strict=True):
            assert np.array_equal(a, b) and a.any()


def test_a_run_writes_only_the_rows_of_its_positions(executor):
    memory = executor._unit.kv_memory
    memory[:] = 0xAB
    executor.run(make_batch([(17, [5])], [[3, 8, -1]], [0]))
    touched = np.flatnonzero((memory != 0xAB).any(axis=1))
    assert touched.tolist() in ([8], [])
    keys, values = used_rows(executor, 8, 16)
    other = np.arange(16) != 1
    assert all((part.view(np.uint8) == 0xAB).all() for part in (keys[..., other].copy(), values[:, other].copy()))


def test_an_interrupted_run_gives_nothing(executor):
    work = make_batch([(0, [1])], [[0]], [0])
    executor.interrupt_word[0] = 1
    assert executor.run(work) is None
    executor.interrupt_word[0] = 0
    assert executor.run(work) is not None


def test_attention_equals_float64_softmax_over_all_parts():
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 8), (600, 2, 8), (600, 2, 8)))
    positions = np.array([10, 300, 599], np.int32)
    got = attention.attend(q, attention.Past(k, v), positions, 0.35)
    for row, position in enumerate(positions):
        for head in range(4):
            scores = k[: position + 1, head // 2].astype(float) @ q[row, head] * np.float32(0.35)
            weights = np.exp(scores - scores.max())
            want = weights @ v[: position + 1, head // 2] / weights.sum()
            assert np.allclose(got[row, head], want, atol=1e-6)


def test_attention_of_one_token_does_not_depend_on_the_others():
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 2, 8), (540, 1, 8), (540, 1, 8)))
    positions = np.arange(500, 540, dtype=np.int32)
    together = attention.attend(q, attention.Past(k, v), positions, 0.3)
    for t in (0, 11, 12, 39):
        seen = slice(0, positions[t] + 1)
        alone = attention.attend(q[t : t + 1], attention.Past(k[seen], v[seen]), positions[t : t + 1], 0.3)
        assert np.array_equal(together[t], alone[0])


def test_rows_are_stored_as_the_page_layout_says():
    layout = KvLayout(num_layers=2, num_kv_heads=2, head_dim=4)
    memory = np.zeros((3, layout.page_bytes), np.uint8)
    k, v = np.arange(1, 33, dtype=np.float32).reshape(2, 2, 2, 4)
    attention.KvRows(memory, layout, 1).append(k, v, make_batch([(15, [1, 2])], [[2, 1]], []))
    halves = memory.view(np.float16)
    for token, (page, slot) in enumerate(((2, 15), (1, 0))):
        for head in range(2):
            start = layout.key_offset(1, head) // 2
            assert np.array_equal(halves[page, start + slot : start + 64 : 16], k[token, head])
            start = layout.value_offset(1, head) // 2
            assert np.array_equal(halves[page, start + 4 * slot : start + 4 * slot + 4], v[token, head])
    assert np.count_nonzero(memory[0]) == 0


def test_int8_rows_have_a_scale_of_their_own_and_are_read_back_within_half_of_it():
    layout = KvLayout(num_layers=2, num_kv_heads=2, head_dim=16, dtype=DType.I8)
    memory = np.full((3, layout.page_bytes), 0xAB, np.uint8)
    k, v = np.random.default_rng(0).standard_normal((2, 2, 2, 16)).astype(np.float32)
    rows = attention.KvRows(memory, layout, 1)
    rows.append(k, v, make_batch([(0, [1, 2])], [[2, 1]], []))
    past = rows.read(np.array([2], np.int32), 2)
    for head in range(2):
        at = layout.scale_offset(1, head)
        scales = memory[2, at : at + 128].view(np.float32).reshape(2, 16)
        assert np.array_equal(scales[:, :2], np.abs((k, v)).max(axis=-1)[:, :, head] / np.float32(127))
    for x, q, part in ((k, past.k, 0), (v, past.v, 1)):
        assert np.abs(q).max() == 127 and np.array_equal(q, np.rint(q))
        scale = past.scales[:, :, part, None]
        assert (np.abs(q * scale - x) <= scale * 0.5001).all()
    layer = slice(layout.key_offset(1, 0))
    assert (memory[2, layer] == 0xAB).all() and (memory[0] == 0xAB).all() and (memory[1] == 0xAB).all()


def test_every_tensor_opcode_has_a_handler():
    assert set(HANDLERS) == {row.name for row in OPCODES if row.tensor}
