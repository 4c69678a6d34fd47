"""ONNX models as LLMIR, in three stages: parse (the file, checked), normalise (one spelling), generate (the graph).

The reader is our own, so importing needs no package; `onnx` and `onnxruntime` are oracles in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unsay.compiler.frontend.imported import Imported
from unsay.compiler.frontend.onnx.generate import ATTRIBUTES, generate
from unsay.compiler.frontend.onnx.normalise import normalise
from unsay.compiler.frontend.onnx.parse import parse
from unsay.errors import ModelFileError, UnimportableError

__all__ = ["import_onnx"]


def import_onnx(path: Path, ranges: Mapping[str, tuple[int, int]] | None = None) -> Imported:
    """The model as a checked graph, its named sizes as dimensions with `ranges` (1..65536 where none is given).

    Raises ModelNotFoundError, ModelFileError (hostile or inconsistent), UnsupportedError (version, element type), or
    UnimportableError, which lists every node that has no meaning in LLMIR.
    """
    model = parse(path)
    try:
        return generate(normalise(model, ATTRIBUTES), ranges)
    except UnimportableError as error:
        raise UnimportableError(path.name, error.problems) from error
    except ModelFileError as error:
        raise type(error)(f"{path.name}: {error}") from error
