"""docs/verification.md names what there is: files, tiers, and every model of an instruction."""

import re
from pathlib import Path

from unsay.compiler.verify.kernels.instructions import INTRINSICS
from unsay.compiler.verify.obligation import obligations
from unsay.compiler.verify.rules import obligations as rules

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "verification.md").read_text()


def test_every_tier_of_an_obligation_is_a_row():
    tiers = {obligation.tier for obligation in [*obligations(), *rules()]}
    assert tiers == {"T2", "T3", "T4", "T5"}
    assert all(f"| {tier} |" in PAGE for tier in ("T0", "T1", *tiers))


def test_every_file_it_names_exists():
    files = re.findall(r"`(verify/[\w./]+)`", PAGE)
    assert len(files) > 8
    assert all((ROOT / "src/unsay/compiler" / name).exists() for name in files)


def test_every_modelled_instruction_of_a_cpu_is_named():
    words = {"vpdpbusd": "vpdpbusd", "pmadd": "vpmadd", "psign": "vpsignb", "sdot": "sdot", "smmla": "smmla",
             "wasm": "i16x8.dot"}  # fmt: skip
    modelled = [pattern for pattern, _ in INTRINSICS if re.search("x86|aarch64|wasm", pattern)]
    for pattern in modelled:
        (name,) = [words[key] for key in words if key in pattern]
        assert name in PAGE


def test_names_of_obligations_are_unique():
    names = [obligation.name for obligation in obligations()]
    assert len(names) == len(set(names))
