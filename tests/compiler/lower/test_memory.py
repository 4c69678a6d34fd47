from hypothesis import given
from hypothesis import strategies as st

from unsay.compiler.lower.memory import Buffer, place
from unsay.compiler.lower.plan import ALIGNMENT_BYTES


@st.composite
def _buffers(draw: st.DrawFn) -> list[Buffer]:
    spans = draw(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 20), st.integers(0, 9)), max_size=20))
    return [Buffer(num_bytes, first, first + length) for num_bytes, first, length in spans]


@given(_buffers())
def test_buffers_that_live_together_share_no_byte(buffers: list[Buffer]):
    total = place(buffers)
    for index, a in enumerate(buffers):
        assert a.offset % ALIGNMENT_BYTES == 0 and a.end <= total
        for b in buffers[:index]:
            together = a.first <= b.last and b.first <= a.last
            assert not together or a.end <= b.offset or b.end <= a.offset


def test_bytes_are_used_again():
    buffers = [Buffer(100, 0, 1), Buffer(100, 1, 2), Buffer(100, 2, 3)]
    assert place(buffers) == 256
    assert [buffer.offset for buffer in buffers] == [0, 128, 0]


def test_a_gap_is_filled_when_it_is_large_enough():
    buffers = [Buffer(128, 0, 1), Buffer(64, 0, 9), Buffer(192, 2, 9), Buffer(128, 2, 9)]
    place(buffers)
    assert [buffer.offset for buffer in buffers] == [0, 128, 192, 0]
