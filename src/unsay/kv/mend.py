"""What follows from the branches, made anew after a change was cut short (docs/decisions/015)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from unsay.kv.node import Node

if TYPE_CHECKING:
    from unsay.kv.tree import KvTree


def mend(tree: KvTree) -> None:
    """Count references and pages again, register the full pages, and write the tables. O(everything)."""
    branches = [branch for branch in list(tree.branches) if branch.holds_nodes]
    held = [(branch.tip, branch.reserved) for branch in branches] + list(tree.abandoned)
    nodes, refs = _reachable([tip for tip, _ in held])
    for node in nodes:
        node.refs = refs[node]
        node.children = None
    for node in nodes:
        if node.depth and node.is_full:
            node.register()
    tree.roots = {node.origin: node for node in nodes if node.depth == 0}
    tree.pool.recount([node.page for node in nodes if node.depth] + [page for _, pages in held for page in pages])
    for branch in branches:
        branch.rebuild_table()
    tree.num_ended = tree.num_begun


def _reachable(tips: list[Node]) -> tuple[list[Node], Counter[Node]]:
    """Every node on the way from a tip to its root, roots too, and how many holders each has."""
    refs = Counter(tips)
    nodes: dict[Node, None] = {}
    for node in tips:
        while node not in nodes:
            nodes[node] = None
            if node.depth:
                node = node.parent
                refs[node] += 1
    return list(nodes), refs
