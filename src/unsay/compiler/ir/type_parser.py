"""Reads one type, `tensor<T x 576 x f32, layout = "row">`, over the dimensions of a graph."""

from __future__ import annotations

import json
from collections.abc import Mapping

from unsay.compiler.ir.tokens import Token, Tokens, grammar
from unsay.compiler.ir.types import DEVICES, DTYPES, ROW, Dim, Extent, TensorType, fits_layout, is_layout

STRING = r'"(?:[^"\\\n]|\\.)*"'
NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
TYPE = rf'tensor\s*<(?:[^<>"]|{STRING})*>'

_LANGUAGE = grammar(("int", r"-?[0-9]+"), ("string", STRING), ("name", NAME), ("mark", r"[<>=,]"))


class TypeParser(Tokens):
    """`token` is that of the type in the text of the graph, `within`, in which places are told."""

    def __init__(self, within: Tokens, token: Token, dims: Mapping[str, Dim]) -> None:
        self._within = within
        self._start = token.start
        self._dims = dims
        super().__init__(token.text, _LANGUAGE)

    def location(self, start: int) -> tuple[int, int]:
        """Line and column of a place in the text of the graph."""
        return self._within.location(self._start + start)

    def parse(self) -> TensorType:
        """The type."""
        self.expect("tensor")
        start = self.token.start
        self.expect("<")
        dims: list[Extent] = []
        while self.following.text == "x":
            dims.append(self._extent())
            self.expect("x")
        token = self.take("name")
        dtype = DTYPES.get(token.text)
        if dtype is None:
            self.fail(f"element type {token.text!r}, known are {', '.join(DTYPES)}", token.start)
        tensor_type = TensorType(tuple(dims), dtype, **self._options())
        if not fits_layout(tensor_type):
            self.fail(f"layout {tensor_type.layout!r} does not fit rank {tensor_type.rank}", start)
        return tensor_type

    def _extent(self) -> Extent:
        token = self.token
        if token.kind == "int":
            extent = self.integer()
            return extent if extent > 0 else self.fail(f"a dimension of {extent}", token.start)
        return named_dim(self, self._dims, self.advance())

    def _options(self) -> dict[str, str]:
        options = {"layout": ROW, "device": "cpu"}
        while not self.accept(">"):
            self.expect(",")
            name = self.take("name")
            self.expect("=")
            start, value = self.token.start, string(self)
            if name.text not in options:
                self.fail(f"a type has no {name.text!r}", name.start)
            if not (is_layout(value) if name.text == "layout" else value in DEVICES):
                self.fail(f"{name.text} {value!r} is not known", start)
            options[name.text] = value
        return options


def named_dim(tokens: Tokens, dims: Mapping[str, Dim], token: Token) -> Dim:
    """The dimension a token names."""
    dim = dims.get(token.text)
    if dim is None:
        tokens.fail(f"dimension {token.text!r}, known are {', '.join(dims)}", token.start)
    return dim


def string(tokens: Tokens) -> str:
    """What the next token, a string, says."""
    token = tokens.take("string")
    try:
        return str(json.loads(token.text))
    except ValueError as error:
        tokens.fail(f"not a JSON string: {error}", token.start)
