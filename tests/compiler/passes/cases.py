"""The cases of tests/ir/<pass>.llmir.

// case: what is claimed
graph ...
// becomes            or: // unchanged
graph ...
"""

import re
from pathlib import Path
from typing import NamedTuple

FILES = sorted((Path(__file__).parents[2] / "ir").glob("*.llmir"))
_CASE = re.compile(r"(?P<claim>[^\n]*)\n(?P<before>.*?\n)// (?:unchanged|becomes\n(?P<after>.*))", re.DOTALL)


class Case(NamedTuple):
    """One case; `after` is `before` where the pass must not apply."""

    name: str
    claim: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.claim}"


def cases() -> list[Case]:
    """All of them."""
    found: list[Case] = []
    for path in FILES:
        for text in path.read_text().split("// case: ")[1:]:
            match = _CASE.match(text)
            assert match, (path.name, text)
            found.append(Case(path.stem, match["claim"], match["before"], match["after"] or match["before"]))
    return found
