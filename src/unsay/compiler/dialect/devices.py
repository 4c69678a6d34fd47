"""What each device is best at: how pictures lie in its memory.

cpu    nchw, which is `row` by another name     one output channel after the other, vectors along a row
gpu    nhwc                                     channels adjacent: a thread block reads whole channels at once
npu    blocked:16                               channels in blocks as wide as the matrix unit
"""

from __future__ import annotations

from unsay.compiler.ir.types import DEVICES, NCHW, NHWC, ROW, TensorType, blocked

PICTURE_LAYOUTS: dict[str, tuple[str, ...]] = {
    "cpu": (NCHW, ROW),
    "gpu": (NHWC,),
    "npu": (blocked(16),),
}
"""The layouts a device takes pictures [N, C, H, W] in, the one to reorder to first."""

assert PICTURE_LAYOUTS.keys() == DEVICES

PICTURE_OPS = frozenset({"conv2d", "conv2d_relu", "max_pool2d", "average_pool2d"})
"""Operations whose first operand is a picture and that slide over it, so that its layout matters to them."""


def takes(device: str, picture: TensorType) -> bool:
    """Whether the device takes the picture as it lies."""
    return picture.layout in PICTURE_LAYOUTS[device]
