"""Memory for machine code, and where a buffer lies. NumPy would tell the latter too, and takes long to import."""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _PyBuffer(ctypes.Structure):
    """Py_buffer, which is part of Python's stable ABI since 3.11."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))
_SIMPLE = 0


def address_of(memory: ReadableBuffer) -> int:
    """Where a buffer lies, which must be in one piece; ctypes itself refuses read-only ones."""
    found = _PyBuffer()
    _get_buffer(memory, found, _SIMPLE)
    address = found.buf or 0
    _release_buffer(found)
    return address


def anonymous(num_bytes: int) -> memoryview:
    """Zeroed memory of whole pages, committed as it is touched; a forked child has its own."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return memoryview(mmap.mmap(-1, max(num_bytes, mmap.PAGESIZE), flags=private))
