"""A module: functions by name, and what they use of LLVM's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from unsay.compiler.beside import look
from unsay.compiler.codegen.builder.function import Function
from unsay.compiler.codegen.builder.value import Value


class Module:
    """Functions by name; each is written once, however often it is asked for.

    substitutes: what to write for an instruction the target lacks (fma, and fpext and fptrunc of halves, which it sees
    as i16).
    """

    def __init__(self, header: str, substitutes: Mapping[str, Callable[..., Value]] | None = None) -> None:
        self._header = header
        self.substitutes = substitutes or {}
        self._declarations: dict[str, str] = {}
        self._definitions: dict[str, str] = {}

    def declare(self, name: str, kind: str, parameters: Sequence[str]) -> None:
        """An intrinsic of LLVM."""
        self._declarations[name] = f"declare {kind} @{name}({', '.join(parameters)})"

    def add_text(self, name: str, definition: str) -> None:
        """A function given as text."""
        self._definitions.setdefault(name, definition)

    def define(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]],
        write: Callable[[Function], None],
        doc: str,
        result: str = "void",
        linkage: str = "internal ",
        inline: bool = True,
    ) -> str:
        """A function written by `write`, unless there is one of this name already; gives back the name.

        Raises CancelledError in a thread that nobody waits for any more (beside.py).
        """
        if name not in self._definitions:
            look()
            function = Function(self, name, parameters, linkage + result)
            self._definitions[name] = ""
            write(function)
            comment = "".join(f"; {line}\n" for line in doc.splitlines())
            self._definitions[name] = comment + function.text("#0" if inline else "noinline #0")
        return name

    def text(self) -> str:
        """The whole module."""
        parts = [self._header, *self._declarations.values(), "", *self._definitions.values()]
        return "\n\n".join(parts) + "\n"
