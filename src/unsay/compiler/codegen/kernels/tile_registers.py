"""The eight tile registers of AMX, of up to 16 rows of 64 bytes, as kernels configure them, and instructions on them.

    0 1 2 3    sums              [M][16] i32
    4 5        x                 [M][c] int8              hi and lo of M rows of 15-bit integers
    6 7        what it meets     [c/4][16][4] int8        c elements of 16 others, four of each together

TDPBSSD adds all c products of a row with each of the 16 to the row's 16 sums, exactly. A configuration is of a thread;
it is loaded where it is needed and released before that thread may leave, wait or be parked: Linux saves 8 KiB more at
every switch of a thread that holds one, and keeps its idle core from deep sleep.
"""

from __future__ import annotations

from unsay.compiler.codegen.builder import I8, I64, Function, Value

TILE_ROWS = 16
"""Most rows of a tile."""

TILE_BYTES = TILE_ROWS * 64


def columns_of_tile(width: int) -> int:
    """The most columns a tile can take so that all tiles of rows this wide take as many."""
    return max(columns for columns in range(4, 65, 4) if width % columns == 0)


def configure(f: Function, columns: int, rows: Value) -> None:
    """LDTILECFG. 64 bytes: palette 1 | from 16 on, bytes of a row of each tile, u16 | from 48 on, rows of each, u8."""
    row_bytes = [64, 64, 64, 64, columns, columns, 64, 64]
    low, high = (sum(size << 16 * place for place, size in enumerate(row_bytes[at : at + 4])) for at in (0, 4))
    num_rows = rows * 0x0000_0101_0101_0101 + (columns // 4 * 0x0101 << 48)
    config = f.buffer(64)
    for place, word in enumerate((1, 0, low, high, 0, 0, num_rows, 0)):
        f.store(f.operand(I64, word), config.at(place * 8), align=8)
    amx(f, "ldtilecfg", config)


def amx(f: Function, name: str, *operands: Value | int) -> None:
    """An instruction on tiles. operands: numbers of tiles, an address, a distance between rows in bytes."""
    last = len(operands) - 1
    is_moved = name in ("tileloadd64", "tilestored64")
    values = [
        operand if isinstance(operand, Value) else f.constant(I64 if is_moved and place == last else I8, operand)
        for place, operand in enumerate(operands)
    ]
    kinds = [f"{value.type} immarg" if value.type == I8 else value.type for value in values]
    f.module.declare(f"llvm.x86.{name}", "void", kinds)
    f.run(f"llvm.x86.{name}", *values)
