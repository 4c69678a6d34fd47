"""The weights of a model file as arrays of numbers, read when they are asked for: what runs a graph outside the engine.

    Q4_0  d f16 | 16 bytes: low halves are elements 0..15, high halves 16..31    w = d * (q - 8)
    Q4_1  d f16 | m f16 | 16 bytes as above                                      w = d * q + m
    Q8_0  d f16 | 32 bytes                                                       w = d * q

Source: the GGUF specification; docs/numerics.md N4, N11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.frontend.model_file import FILE_BLOCKS, WeightFile
from unsay.core import Float32Array
from unsay.isa.formats import DType


class FileWeights(Mapping[str, NDArray[Any]]):
    """Every tensor under its name: f32 and f16 as they are stored, all else as the f32 numbers it stands for."""

    def __init__(self, file: WeightFile) -> None:
        self._file = file

    def __getitem__(self, name: str) -> NDArray[Any]:
        tensor = self._file.tensors[name]
        rows = self._file.data(name)
        return numbers(rows, tensor.dtype).reshape(tensor.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.tensors)

    def __len__(self) -> int:
        return len(self._file.tensors)


def numbers(rows: NDArray[np.uint8], dtype: DType) -> NDArray[Any]:
    """Rows of a file, uint8 [N, row_bytes], as numbers [N, K]."""
    match dtype:
        case DType.F32:
            return rows.view("<f4")
        case DType.F16:
            return rows.view("<f2")
        case DType.BF16:
            return (rows.view("<u2").astype(np.uint32) << 16).view(np.float32)
        case _:
            return _dequantised(rows, dtype)


def _dequantised(rows: NDArray[np.uint8], dtype: DType) -> Float32Array:
    elements, block_bytes = FILE_BLOCKS[dtype]
    blocks = rows.reshape(-1, block_bytes)
    d = blocks[:, :2].copy().view("<f2").astype(np.float32)
    if dtype is DType.Q8_0:
        return (d * blocks[:, 2:].view(np.int8)).reshape(len(rows), -1)
    packed = blocks[:, -elements // 2 :]
    q = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)
    if dtype is DType.Q4_0:
        return (d * (q - 8)).reshape(len(rows), -1)
    assert dtype is DType.Q4_1, dtype
    return (d * q + blocks[:, 2:4].copy().view("<f2").astype(np.float32)).reshape(len(rows), -1)
