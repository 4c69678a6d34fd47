"""The builder's text is LLVM IR that means what was written."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from unsay.compiler.codegen.builder import F32, F32X16, I32, I64, PTR, Function, Module, literal
from unsay.compiler.codegen.translate import ATTRIBUTES, compile_module
from unsay.isa.targets import find_target


def test_constants_are_rounded_to_f32_and_written_exactly() -> None:
    text = literal(F32, 0.1)
    (value,) = struct.unpack("<d", struct.pack("<Q", int(text, 16)))
    assert value == float(np.float32(0.1))
    assert literal(F32X16, 1.0) == "splat (float 0x3FF0000000000000)"


def test_a_function_is_written_once() -> None:
    module, calls = Module(ATTRIBUTES), []
    for _ in range(2):
        module.define("twice", [(PTR, "x")], lambda f: calls.append(f.name), "nothing")
    assert calls == ["twice"]


def test_operands_of_different_types_are_refused() -> None:
    function = Function(Module(ATTRIBUTES), "f", [(I64, "a"), (I32, "b")], "void")
    with pytest.raises(AssertionError):
        function["a"] + function["b"]


def test_every_function_compiles_to_code_without_open_symbols() -> None:
    module = Module(ATTRIBUTES)

    def write(f: Function) -> None:
        with f.loop("i", 0, f["n"]) as i, f.when((i % 3).compare("eq", 1)):
            f.store(f.constant(F32X16, 0.0), f["x"].at(i * 64), align=4)

    module.define("clear", [(PTR, "x"), (I64, "n")], write, "zero every third vector", linkage="")
    blob, symbols = compile_module(module.text(), find_target("avx2"))
    assert 0 <= symbols["clear"] < len(blob)
