"""Operations and passes from outside this repository: what they must keep, how that is checked, how they are used.

docs/extending.md has an example. contract.py: what an extension is; conformance.py: the suite it must pass;
install.py: putting it to use, or its fallback in its place.
"""

from unsay.compiler.extension.conformance import problems_of
from unsay.compiler.extension.contract import BASELINE, Extension, OpExtension, PassExtension, Rule, Version
from unsay.compiler.extension.install import Installed, expand, install, load

__all__ = [
    "BASELINE", "Extension", "Installed", "OpExtension", "PassExtension", "Rule", "Version", "expand", "install",
    "load", "problems_of",
]  # fmt: skip
