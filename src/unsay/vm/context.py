"""A context: 16 registers, a program counter and a root into the KV tree. What FORK and ABORT act on.

    0              branch.length            length
    |-- computed ------|------ pending -------|        positions of the context's tokens
       in the KV tree     appended, not run; keys: ids, with the class they are to be computed in (isa/classes.py)

Invariants
1. branch.length + len(pending) == length; positions of pending tokens follow those of the branch.
2. A context that has tokens and is ready to be sampled has at least one pending token: the tree keeps keys and values,
   not logits, so the logits after a token come from running that token (see `_rewind`).
3. Checkpoints have ascending indices, none above length; index 0 always is one (zero registers, pc 0).
4. R0 is zero.

`Session.fork` and `Session.rollback` are these two methods, so a program and a person take words back by the same code.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from unsay.errors import PositionError, RequestError
from unsay.isa.classes import MAX_TOKEN_ID, ids_of, keys_of
from unsay.isa.opcodes import NUM_REGISTERS

if TYPE_CHECKING:
    from unsay.kv.tree import Branch

_ZEROS: tuple[int, ...] = (0,) * NUM_REGISTERS


def check_position(given: object, valid: tuple[int, int], what: str = "position") -> int:
    """`given` as an int if it is an integer in `valid` (inclusive); else PositionError, also for bool and float."""
    if type(given) is int and valid[0] <= given <= valid[1]:
        return given
    try:
        position = operator.index(given)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise PositionError(given, valid, what) from None
    if isinstance(given, bool) or not valid[0] <= position <= valid[1]:
        raise PositionError(given, valid, what)
    return position


def check_token_ids(token_ids: Iterable[int]) -> list[int]:
    """The ids as a list; RequestError if one is no integer in 0..2^31-1. The size of the vocabulary is the engine's."""
    ids = list(token_ids)
    if not ids:
        return ids
    for place, token_id in enumerate(ids):
        if isinstance(token_id, bool) or not hasattr(token_id, "__index__") or not 0 <= token_id <= MAX_TOKEN_ID:
            raise RequestError(f"token {place} is {token_id!r}: a token id is an integer in 0..{MAX_TOKEN_ID}")
    return [int(token_id) for token_id in ids]


class _Checkpoint(NamedTuple):
    """Registers and pc at a length. Links to the one before, and by `jump` to one further back (Myers, 1983), so that
    contexts share the chain and finding the nearest below an index takes O(log n) steps."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    registers: tuple[int, ...]
    pc: int
    depth: int
    before: _Checkpoint | None
    jump: _Checkpoint | None

    def follow(self, index: int, registers: tuple[int, ...], pc: int) -> _Checkpoint:
        """The chain grown by one."""
        far = self.jump
        level = far is not None and far.jump is not None and self.depth - far.depth == far.depth - far.jump.depth
        return _Checkpoint(index, registers, pc, self.depth + 1, self, far.jump if far and level else self)

    def nearest(self, target: int) -> _Checkpoint:
        """The last checkpoint whose index is at or below `target`."""
        point = self
        while point.index > target:
            jump = point.jump
            point = jump if jump is not None and jump.index > target else point.before
            assert point is not None, ("index 0 is always a checkpoint", target)
        return point


_BIRTH = _Checkpoint(index=0, registers=_ZEROS, pc=0, depth=0, before=None, jump=None)


class Context:
    """One running context. Owns its branch: `release` gives it back. Not thread-safe; the engine's lock guards it."""

    __slots__ = ("_checkpoint", "branch", "pc", "pending", "registers")

    def __init__(self, branch: Branch, registers: Sequence[int] = _ZEROS, pending: Sequence[int] = ()) -> None:
        self.branch = branch
        self.registers = list(registers)
        self.pc = 0
        self.pending = list(pending)
        self._checkpoint = _BIRTH

    @property
    def length(self) -> int:
        """Tokens of this context, computed or not."""
        return self.branch.length + len(self.pending)

    def token_ids(self) -> list[int]:
        """Every token of this context, computed or not; O(n)."""
        return ids_of(self.keys())

    def keys(self) -> list[int]:
        """The same with their classes."""
        return self.branch.token_ids() + self.pending

    def append(self, token_ids: Iterable[int], is_fast: bool = False) -> None:
        """Add tokens to be computed by the next steps, in the fast class or exactly."""
        self.pending.extend(keys_of(check_token_ids(token_ids), is_fast))

    def commit(self, num_tokens: int) -> None:
        """A step ran to its end: the first `num_tokens` pending tokens, whose rows were reserved, are now computed."""
        assert 0 <= num_tokens <= len(self.pending), (num_tokens, len(self.pending))
        self.branch.commit(self.pending[:num_tokens], self.pending)

    def fork(self) -> Context:
        """A second context in the same state that shares every page; its cost does not depend on the length."""
        child = Context(self.branch.fork(), self.registers, self.pending)
        child.pc = self.pc
        child._checkpoint = self._checkpoint
        return child

    def checkpoint(self) -> int:
        """Record registers and pc at the current length; returns that length."""
        self._checkpoint = self._checkpoint.follow(self.length, tuple(self.registers), self.pc)
        return self.length

    def abort(self, target: int, payload_ids: Iterable[int] = (), is_fast: bool = False) -> None:
        """R(root, target): go back to `target` tokens (0..length) and append the payload in its class, to be computed.

        Registers and pc are those of the nearest checkpoint at or before the target. Costs O(log) of the number of
        tokens and checkpoints. Raises PositionError or RequestError and changes nothing if an argument is wrong.
        """
        target = check_position(target, (0, self.length), "rollback target")
        payload = keys_of(check_token_ids(payload_ids), is_fast)
        point = self._checkpoint.nearest(target)
        self._rewind(target, payload)
        self._checkpoint = point
        self.registers[:] = point.registers
        self.pc = point.pc

    def _rewind(self, target: int, payload: list[int]) -> None:
        """Keep the first `target` tokens, then the payload. The one place that knows invariant 2: where nothing would
        be left to compute, the last kept token is taken out of the tree and computed again, for its logits."""
        branch = self.branch
        computed = min(target, branch.length)
        pending = self.pending[: target - computed] + payload
        if not pending and computed > 0:
            computed -= 1
            pending = [branch.token_at(computed)]
        self.pending[:] = pending  # first: cut short between the two, the context is too long, which its owner sees
        branch.truncate(computed)

    def exchange(self, other: Context) -> None:
        """Change branches with a context of the same tokens, registers and checkpoints, in one row."""
        self.branch, self.pending, other.branch, other.pending = other.branch, other.pending, self.branch, self.pending

    def release(self) -> None:
        """Give the branch back; the context is not used afterwards."""
        self.branch.release()
