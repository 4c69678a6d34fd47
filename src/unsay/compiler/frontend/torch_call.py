"""A use of an ATen operation, as a rule sees it (torch_ops.py).

Arguments go by the names of the operation's own schema, defaults included; one that a rule does not ask for and that is
not at its default is refused, so none is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from unsay.compiler.frontend.torch_builder import Builder
from unsay.compiler.ir.core import Value
from unsay.compiler.ir.types import TensorType
from unsay.errors import UnsupportedError

_IGNORED = frozenset({
    "copy", "device", "dtype", "implicit", "layout", "memory_format", "non_blocking", "padding_idx", "pin_memory",
    "requires_grad", "scale_grad_by_freq", "sparse",
})  # fmt: skip
"""Where a tensor lies, how it is trained, and element types, which the result's own type tells."""


class Empty:
    """A tensor without elements: LLMIR has none. Programs make them where a slice leaves nothing, and join them."""


class Call:
    """One use of an operation: `result` is the type torch states, of the first result if there are several."""

    def __init__(
        self, name: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any], results: Sequence[TensorType]
    ):
        self.name = name
        self.results = results
        self._arguments = arguments
        self._defaults = defaults
        self._read = set(_IGNORED)

    @property
    def result(self) -> TensorType:
        """Type of the only or first result."""
        return self.results[0]

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._arguments[name] if name in self._arguments else self._defaults[name]

    def __contains__(self, name: str) -> bool:
        return name in self._arguments or name in self._defaults

    def tensor(self, name: str) -> Value:
        """An argument that is a tensor."""
        value = self[name]
        return value if isinstance(value, Value) else self.refuse(f"{name} that is no tensor, or an empty one")

    def axis(self, name: str, rank: int) -> int:
        """An argument that is a dimension, from the front."""
        return int(self[name]) % max(rank, 1)

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """An argument that is some dimensions; all where there are none."""
        given = self[name]
        given = [given] if isinstance(given, int) else given
        return tuple(axis % rank for axis in given) if given else tuple(range(rank))

    def need(self, name: str, *allowed: object) -> None:
        """An argument of which only these values are built in."""
        if self[name] not in allowed:
            self.refuse(f"{name} = {self[name]!r}")

    def check_all_read(self) -> None:
        """Refuse an argument nobody asked for."""
        for name, value in self._arguments.items():
            if name not in self._read and value is not self._defaults.get(name) and value != self._defaults.get(name):
                self.refuse(f"{name} = {str(value)[:40]}")

    def refuse(self, what: str) -> Any:
        """Raise UnsupportedError."""
        raise UnsupportedError(f"{self.name} with {what}")


Rule: TypeAlias = Callable[[Call, Builder], Any]


def rows(rule: Rule, *names: str) -> Iterable[tuple[str, Rule]]:
    """A rule under the names of its operations; one without an overload is `default`."""
    return ((f"aten.{name}" if "." in name else f"aten.{name}.default", rule) for name in names)
