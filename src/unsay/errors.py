"""Everything unsay raises on purpose.

    UnsayError
    ├── ModelFileError          the model file is wrong (truncated, hostile, unsupported)
    │   └── UnsupportedError    well formed, but names something this version does not do
    │       └── UnimportableError  a graph or kernel with operations LLMIR does not have; lists every one
    ├── ModelNotFoundError      no such model name or path
    ├── DownloadError           the network or the registry failed; what was fetched is kept
    ├── CacheError              the cache cannot be written (no space, no permission)
    ├── TargetError             this CPU, or the CPU named by --target, cannot run unsay
    ├── IrError                 LLMIR text or graph breaks a rule; carries line and column
    │   └── PassError           a pass left the graph illegal, or was refuted
    ├── ExtensionError          an extension of the compiler does not keep its contract; lists every breach
    ├── ProgramError            AVM bytes or assembly that do not decode; carries where
    │   └── MachineError        a program did what the machine forbids while it ran
    │       └── InvariantError  a checked run computed what an operation never may
    ├── TemplateError           the chat template failed, ran out of fuel or is not allowed
    ├── RequestError            the caller's arguments are wrong: what was given, what is allowed
    │   ├── PositionError       a token index outside the valid range
    │   └── ContextFullError    no room for the tokens asked for
    ├── SessionLogError         the file of sessions cannot be read or written, or is not one
    ├── SessionBusyError        another thread is generating on this session
    └── OutOfPagesError         the KV pool is full and nothing in it can be dropped

Faults of our own are `assert`s with values, never one of these.
"""

from __future__ import annotations

from collections.abc import Sequence


class UnsayError(Exception):
    """Root of everything raised on purpose."""


class ModelFileError(UnsayError):
    """The model file is wrong; says where in the file and what was expected there."""


class UnsupportedError(ModelFileError):
    """The file is well formed but names a format, architecture or tokenizer not supported."""


class UnimportableError(UnsupportedError):
    """What a graph or kernel asks for and LLMIR does not have: a line for each in `problems`."""

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        listed = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"{what}: {len(problems)} of its operations cannot be imported{listed}")
        self.problems = tuple(problems)


class ModelNotFoundError(UnsayError):
    """No model under this name or path."""


class DownloadError(UnsayError):
    """A download failed; what was fetched is kept and the next try resumes."""


class CacheError(UnsayError):
    """The cache directory cannot be used: no space, no permission, or not a directory."""


class TargetError(UnsayError):
    """The CPU lacks what unsay needs, or the target named is not known."""


class IrError(UnsayError):
    """LLMIR that breaks a rule. `line` and `column` are 1-based, 0 when not from text; `message` is without them."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"{line}:{column}: {message}" if line else message)
        self.message = message
        self.line = line
        self.column = column


class PassError(IrError):
    """A pass left the graph illegal, or its result was refuted."""


class ExtensionError(UnsayError):
    """An extension of the compiler cannot be used; `problems` are the breaches of its contract, `name` whose."""

    def __init__(self, name: str, problems: list[str]) -> None:
        super().__init__(f"extension {name} cannot be used:\n" + "\n".join(f"  - {problem}" for problem in problems))
        self.name = name
        self.problems = problems


class ProgramError(UnsayError):
    """AVM bytes or assembly text that do not decode."""


class MachineError(ProgramError):
    """A program did something the machine forbids while it ran."""


class InvariantError(MachineError):
    """A checked run (`--checked`) computed what an operation never may; names the operation and its invariant."""


class TemplateError(UnsayError):
    """The chat template failed, ran out of fuel, or asked for what is not allowed."""


class RequestError(UnsayError):
    """Arguments of a call are wrong; says what was given and what is allowed."""


class PositionError(RequestError):
    """A token index outside the valid range, which `valid` names (inclusive)."""

    def __init__(self, given: object, valid: tuple[int, int], what: str = "position") -> None:
        super().__init__(f"{what} {given!r} is out of range: it must be an integer in {valid[0]}..{valid[1]}")
        self.given = given
        self.valid = valid


class ContextFullError(RequestError):
    """No room for the tokens asked for; says how many there are and how many fit."""


class SessionBusyError(UnsayError):
    """Another thread is generating on this session: interrupt() it first."""


class SessionLogError(UnsayError):
    """The file sessions are logged in cannot be used: damaged, of another program or version, locked, or disk full."""


class OutOfPagesError(UnsayError):
    """The KV pool is full and nothing in it can be dropped."""
