"""Reads back the LLVM IR text that codegen/builder writes, so that what is proved is what is compiled.

Only the forms the builder writes are known; any other line is a KernelTextError, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from unsay.compiler.verify.obligation import NotProvedError, Result, Status

_BINARY = frozenset(
    ["add", "sub", "mul", "udiv", "urem", "and", "or", "xor", "shl", "lshr", "ashr", "fadd", "fsub", "fmul", "fdiv"]
)
CASTS = frozenset(["sext", "zext", "trunc", "sitofp", "uitofp", "fptosi", "fpext", "fptrunc", "bitcast"])
_DEFINE = re.compile(r"define (?:internal )?(\S+|<[^>]*>) @([\w.]+)\((.*)\)[^()]*\{")
_LABEL = re.compile(r"([\w.]+):")
_RESULT = re.compile(r"(%[\w.]+) = (.*)")
_CALL = re.compile(r"call (.+?) @([\w.]+)\((.*)\)")
_CAST = re.compile(r"(\w+) (.+) to (.+)")
_MASK = re.compile(r"i32 (\d+)")


class KernelTextError(NotProvedError):
    """A line of IR text that the builder is not known to write, or a use of memory that is not followed."""

    def __init__(self, text: str) -> None:
        super().__init__(Result(Status.UNKNOWN, text), "IR text")


@dataclass(frozen=True, slots=True)
class Operand:
    """A typed name or constant, as written: `<8 x i32>` and `%v65`."""

    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction. detail: the condition of a compare, the callee, the labels of a branch, lanes of a shuffle."""

    result: str | None
    op: str
    type: str
    operands: tuple[Operand, ...]
    detail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionText:
    """A function: parameters (type, name) and blocks in the order written, `entry` first."""

    name: str
    parameters: tuple[Operand, ...]
    blocks: Mapping[str, tuple[Line, ...]]


class Functions(Mapping[str, FunctionText]):
    """The functions of a module's text by name, each read when it is asked for; those with atomics are left out."""

    def __init__(self, module: str) -> None:
        self._found: dict[str, FunctionText] = {}
        self._chunks: dict[str, tuple[str, str]] = {}
        for chunk in re.split(r"\n(?=(?:; [^\n]*\n)*define )", module):
            start = _DEFINE.search(chunk)
            if start and not re.search(r"\batomic|\basm\b|cmpxchg|fence", chunk):
                self._chunks[start[2]] = (start[3], chunk[start.end() :])

    def __getitem__(self, name: str) -> FunctionText:
        if name not in self._found:
            self._found[name] = _function(name, *self._chunks[name])
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)


functions = lru_cache(maxsize=4)(Functions)
"""The functions of a text, read once."""


def _function(name: str, parameters: str, body: str) -> FunctionText:
    blocks: dict[str, list[Line]] = {}
    current: list[Line] = []
    for raw in body.splitlines():
        line = raw.strip()
        if line == "}":
            break
        if not line:
            continue
        label = _LABEL.fullmatch(line)
        if label:
            current = blocks.setdefault(label[1], [])
        else:
            current.append(parse_line(line))
    return FunctionText(name, tuple(map(_operand, split(parameters))), {key: tuple(at) for key, at in blocks.items()})


def parse_line(line: str) -> Line:
    """One instruction; raises KernelTextError."""
    if line.startswith(";"):
        return Line(None, "comment", "void", (), (line.lstrip("; "),))
    named = _RESULT.fullmatch(line)
    result, text = (named[1], named[2]) if named else (None, line)
    op, _, rest = text.partition(" ")
    if op == "call":
        return _call(result, text)
    if op in CASTS:
        how, source, kind = _whole(_CAST, text, line)
        return Line(result, how, kind, (_operand(source),))
    if op in _BINARY:
        return _binary(result, op, rest.removeprefix("nsw "))
    if op in _OTHER:
        return _OTHER[op](result, op, split(rest))
    raise KernelTextError(line)


def _call(result: str | None, text: str) -> Line:
    kind, callee, arguments = _whole(_CALL, text, text)
    return Line(result, "call", kind, tuple(map(_operand, split(arguments))), (callee,))


def _binary(result: str | None, op: str, rest: str) -> Line:
    left, right = split(rest)
    first = _operand(left)
    return Line(result, op, first.type, (first, Operand(first.type, right)))


def _compare(result: str | None, op: str, parts: list[str]) -> Line:
    condition, _, left = parts[0].partition(" ")
    first = _operand(left)
    return Line(result, op, first.type, (first, Operand(first.type, parts[1])), (condition,))


def _load(result: str | None, op: str, parts: list[str]) -> Line:
    return Line(result, op, parts[0], (_operand(parts[1]),), tuple(parts[2:]))


def _plain(result: str | None, op: str, parts: list[str]) -> Line:
    operands = tuple(_operand(part) for part in parts if not part.startswith("align"))
    return Line(result, op, operands[0].type if operands else "void", operands)


def _pointer(result: str | None, op: str, parts: list[str]) -> Line:
    if parts[0] != "i8":
        raise KernelTextError(f"{op} {parts}: addresses count bytes")
    return Line(result, op, "ptr", tuple(map(_operand, parts[1:])))


def _alloca(result: str | None, op: str, parts: list[str]) -> Line:
    return Line(result, op, parts[0], ())


def _shuffle(result: str | None, op: str, parts: list[str]) -> Line:
    first, second = _operand(parts[0]), _operand(parts[1])
    lanes = tuple(_MASK.findall(parts[2].split("> ", 1)[1]))
    element = first.type.rstrip(">").split(" x ")[1]
    both = (first,) if second.text == "poison" else (first, second)
    return Line(result, op, f"<{len(lanes)} x {element}>", both, lanes)


def _extract(result: str | None, op: str, parts: list[str]) -> Line:
    first = _operand(parts[0])
    return Line(result, op, first.type.rstrip(">").split(" x ")[1], (first,), (parts[1].split()[-1],))


def _select(result: str | None, op: str, parts: list[str]) -> Line:
    operands = tuple(map(_operand, parts))
    return Line(result, op, operands[1].type, operands)


def _phi(result: str | None, op: str, parts: list[str]) -> Line:
    kind, _, first = parts[0].partition(" ")
    values = [part.strip("[] ") for part in (first, *parts[1:])]
    pairs = [value.split(", ") for value in values]
    return Line(
        result, op, kind, tuple(Operand(kind, value) for value, _ in pairs), tuple(label[1:] for _, label in pairs)
    )


def _branch(result: str | None, op: str, parts: list[str]) -> Line:
    labels = tuple(part.split("%")[1] for part in parts if part.startswith("label"))
    return Line(result, op, "void", tuple(_operand(part) for part in parts if not part.startswith("label")), labels)


def _return(result: str | None, op: str, parts: list[str]) -> Line:
    operands = () if parts == ["void"] else tuple(map(_operand, parts))
    return Line(result, op, "void", operands)


_OTHER = {
    "icmp": _compare,
    "fcmp": _compare,
    "load": _load,
    "store": _plain,
    "fneg": _plain,
    "insertelement": _plain,
    "extractelement": _extract,
    "shufflevector": _shuffle,
    "getelementptr": _pointer,
    "alloca": _alloca,
    "select": _select,
    "phi": _phi,
    "br": _branch,
    "ret": _return,
}


def split(text: str) -> list[str]:
    """At commas outside brackets of any kind."""
    return [part.strip() for part in _pieces(text)] if text.strip() else []


def _pieces(text: str) -> Iterator[str]:
    depth = start = 0
    for place, letter in enumerate(text):
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _operand(text: str) -> Operand:
    """`<8 x i32> %v65` in two: the type ends with its bracket, or with the first space."""
    end = text.index(">") + 1 if text.startswith("<") else text.index(" ")
    return Operand(text[:end], text[end:].strip())


def _whole(pattern: re.Pattern[str], text: str, line: str) -> tuple[str, ...]:
    found = pattern.fullmatch(text)
    if found is None:
        raise KernelTextError(line)
    return found.groups()
