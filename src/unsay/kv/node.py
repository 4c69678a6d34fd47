"""One page of the tree: up to 16 tokens after its parent's, with a link to an ancestor further up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from unsay.core import PAGE_TOKENS

Origin: TypeAlias = tuple[str, bytes]
"""What a prefix belongs to beside its ids: (adapter, tenant salt), compared field by field."""

NO_PAGE = -1
"""`Node.page` of a root, which holds no tokens."""


class Node:
    """A page of tokens. `refs` counts its holders: branches whose tip it is, and its children.

    depth: pages from the root, which is its own parent and jump. tokens: at most 16 ids; a node with 16 is full and
    never written again. children: full nodes right below, by their ids; None until there is one.
    """

    __slots__ = ("children", "depth", "jump", "origin", "page", "parent", "refs", "tokens")

    def __init__(self, origin: Origin, page: int, parent: Node | None = None, tokens: tuple[int, ...] = ()) -> None:
        self.origin = origin
        self.page = page
        self.tokens = tokens
        self.refs = 0
        self.children: dict[tuple[int, ...], Node] | None = None
        self.parent = self.jump = parent or self
        self.depth = 0
        if parent is not None:
            self.depth = parent.depth + 1
            self.jump = jump_of_child(parent)

    @property
    def start(self) -> int:
        """Position of the node's first token."""
        return (self.depth - 1) * PAGE_TOKENS

    @property
    def is_full(self) -> bool:
        """Whether every row holds a token; a root counts as full: what follows goes into a child."""
        return len(self.tokens) == PAGE_TOKENS or self.depth == 0

    def child(self, key: tuple[int, ...]) -> Node | None:
        """The registered child that holds exactly these ids."""
        return self.children.get(key) if self.children else None

    def register(self) -> None:
        """Let `child` and `longest_match` of the parent find this full node."""
        if self.parent.children is None:
            self.parent.children = {}
        assert self.tokens not in self.parent.children, self.tokens
        self.parent.children[self.tokens] = self

    def unregister(self) -> None:
        """Undo `register`."""
        assert self.parent.children is not None and self.parent.children[self.tokens] is self, self.tokens
        del self.parent.children[self.tokens]
        self.parent.children = self.parent.children or None

    def longest_match(self, token_ids: Sequence[int]) -> tuple[Node, int]:
        """The registered child that shares most leading ids with `token_ids`, and how many; (self, 0) if none does."""
        best, longest = self, 0
        for key, node in (self.children or {}).items():
            shared = num_shared(key, token_ids)
            if shared > longest:
                best, longest = node, shared
        return best, longest


def jump_of_child(parent: Node) -> Node:
    """Where a child of `parent` jumps to: skew-binary numbers, so that log2(n) jumps reach any ancestor.

    Source: E. W. Myers, "An applicative random-access stack", Information Processing Letters 17 (1983).
    """
    far = parent.jump
    return far.jump if parent.depth - far.depth == far.depth - far.jump.depth and parent.depth else parent


def ancestor(node: Node, depth: int) -> Node:
    """The node at `depth` on the way from `node` to its root; O(log n)."""
    assert 0 <= depth <= node.depth, (depth, node.depth)
    while node.depth > depth:
        node = node.jump if node.jump.depth >= depth else node.parent
    return node


def path_up(node: Node) -> Iterator[Node]:
    """`node` and its ancestors, without the root."""
    while node.depth:
        yield node
        node = node.parent


def num_shared(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading elements are equal."""
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def num_pages(num_tokens: int) -> int:
    """Pages that hold `num_tokens`."""
    return -(-num_tokens // PAGE_TOKENS)
