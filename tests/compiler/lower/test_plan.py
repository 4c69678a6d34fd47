import json

from unsay.compiler.lower.plan import PackedMatrix, PackedVector, PackingPlan, RopeTable, Source
from unsay.isa.formats import DType


def _plan(base: float = 10000.0) -> PackingPlan:
    matrix = PackedMatrix(0, DType.Q8_0, 32, (Source("q", 16, 2, 8), Source("k", 8, 1, 8)))
    vector = PackedVector(1088, (Source("norm", 32),))
    table = RopeTable(1216, 64, 8, base)
    return PackingPlan((matrix, vector, table), 1216 + table.num_bytes)


def test_entries_are_whole_multiples_of_64_bytes():
    matrix, vector, table = _plan().entries
    assert (matrix.num_bytes, vector.num_bytes, table.num_bytes) == (2 * 544, 128, 64 * 8 * 4)
    assert PackedVector(0, (Source("bias", 17),)).num_bytes == 128


def test_equal_plans_have_equal_digests_and_any_change_shows():
    assert _plan().digest() == _plan().digest()
    assert _plan().digest() != _plan(base=10001.0).digest()


def test_json_names_the_kind_of_each_entry():
    kinds = [entry["kind"] for entry in json.loads(_plan().to_json())["entries"]]
    assert kinds == ["PackedMatrix", "PackedVector", "RopeTable"]
