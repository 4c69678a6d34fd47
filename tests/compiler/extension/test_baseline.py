from tests.compiler.extension.baseline import lines, pinned, wanted
from unsay.compiler.extension import BASELINE, Version


def test_the_baseline_is_what_its_version_says():
    version, before = pinned()
    after = lines()
    gone, new = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    needed = wanted(version, before, after)
    advice = f"make BASELINE {needed} and run python -m tests.compiler.extension.baseline"
    assert (gone, new) == ([], []), advice
    assert version == BASELINE


def test_what_is_added_asks_for_a_minor_version_and_what_changes_for_a_major_one():
    assert wanted(Version(1, 3), ["a", "b"], ["a", "b"]) == Version(1, 3)
    assert wanted(Version(1, 3), ["a", "b"], ["a", "b", "c"]) == Version(1, 4)
    assert wanted(Version(1, 3), ["a", "b"], ["a", "c"]) == Version(2, 0)


def test_every_operation_is_pinned_with_what_it_means():
    pins = pinned()[1]
    rows = {line.split("(")[0].split()[-1] for line in pins if line.startswith("op tensor ")}
    meant = {line.split()[1] for line in pins if line.startswith("meaning ")}
    assert rows - meant == {"broadcast_to", "constant", "input", "iota", "reshape", "size"}
