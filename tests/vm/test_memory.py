"""The address space and the peripherals."""

from __future__ import annotations

import numpy as np
import pytest

from unsay.errors import MachineError, RequestError
from unsay.isa.address import PROGRAM_OFFSET, address_tag, make_address, split_address
from unsay.isa.opcodes import Peripheral, Region
from unsay.vm.assembler import assemble
from unsay.vm.memory import RING_BYTES, Memory
from unsay.vm.peripherals import Peripherals
from unsay.vm.records import Record

PROGRAM = assemble("HALT\n.data\n.bytes 01020304").program


@pytest.fixture
def memory():
    return Memory(PROGRAM, memoryview(bytes(range(100))), memoryview(bytes(8192)))


def test_addresses_carry_region_offset_and_tag():
    address = make_address(Region.PERSISTENT, 2**64 - 1, 7)
    assert split_address(address) == (Region.PERSISTENT, 2**64 - 1) and address_tag(address) == 7
    assert f"{address:032x}" == "2000000000000007ffffffffffffffff"


def test_program_and_data_are_read_only_and_not_copied_apart(memory):
    seen = memory.view(make_address(Region.GLOBAL, PROGRAM_OFFSET), 36)
    assert seen.tobytes() == PROGRAM.instructions[0].encode() + PROGRAM.data and not seen.flags.writeable


def test_weights_are_the_array_given_and_read_only():
    weights = np.arange(64, dtype=np.uint8)
    seen = Memory(PROGRAM, weights).view(make_address(Region.PERSISTENT, 8), 4)
    assert np.shares_memory(seen, weights) and seen.tolist() == [8, 9, 10, 11] and not seen.flags.writeable


@pytest.mark.parametrize(
    ("region", "offset", "size"),
    [(Region.PERSISTENT, 0, 100), (Region.PERSISTENT, 99, 1), (Region.KV_CACHE, 8191, 1), (Region.GLOBAL, 0, 2**28)],
)
def test_the_last_byte_can_be_read_and_the_next_is_refused(memory, region, offset, size):
    assert len(memory.view(make_address(region, offset), size)) == size
    with pytest.raises(MachineError, match=region.name):
        memory.view(make_address(region, offset), size + 1)
    with pytest.raises(MachineError, match="outside its memory"):
        memory.view(make_address(region, offset + size), 1)


def test_records_come_back_until_newer_ones_take_their_place(memory):
    first = memory.deliver(Record(-1, (1, 2, 3)))
    second = memory.deliver(Record(9, ()))
    assert memory.record(first) == Record(-1, (1, 2, 3)) and memory.record(second) == Record(9, ())
    big = Record(-1, tuple(range(RING_BYTES // 8)))
    memory.deliver(big)
    assert memory.record(first).token_ids == (1, 2, 3)
    third = memory.deliver(big)
    assert memory.record(third) == big
    for gone in (first, second):
        with pytest.raises(MachineError, match="newer ones took its place"):
            memory.record(gone)


def test_a_record_larger_than_the_ring_is_refused(memory):
    with pytest.raises(MachineError, match="does not fit the ring"):
        memory.deliver(Record(-1, (0,) * (RING_BYTES // 4)))


def test_take_does_not_wait_and_keeps_order():
    peripherals = Peripherals()
    assert peripherals.take(Peripheral.USER_INPUT) is None
    peripherals.post(Peripheral.USER_INPUT, [1])
    peripherals.post(Peripheral.USER_INPUT, [2], target=5)
    assert peripherals.take(Peripheral.GUARD) is None
    assert [peripherals.take(Peripheral.USER_INPUT) for _ in range(3)] == [Record(-1, (1,)), Record(5, (2,)), None]


def test_the_timer_comes_when_due_and_does_not_make_up_for_lost_time():
    now = [0.0]
    peripherals = Peripherals(lambda: now[0])
    peripherals.set_timer(2.0)
    assert peripherals.take(Peripheral.TIMER) is None
    now[0] = 7.0
    assert peripherals.take(Peripheral.TIMER) == Record(-1, ())
    assert peripherals.take(Peripheral.TIMER) is None


def test_wait_sleeps_until_the_timer_is_due_and_no_longer(monkeypatch):
    now, slept = [0.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    peripherals = Peripherals(lambda: now[0])
    monkeypatch.setattr(peripherals._news, "wait", sleep)
    peripherals.set_timer(0.5)
    assert not peripherals.wait(0.25)
    assert peripherals.wait(5)
    assert slept == [0.25, 0.25]


def test_what_is_posted_must_be_token_ids():
    with pytest.raises(RequestError, match=r"token 0 is 1\.5"):
        Peripherals().post(Peripheral.USER_INPUT, [1.5])
