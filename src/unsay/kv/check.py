"""The invariants of kv/tree.py, each asserted under its number."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from unsay.core import PAGE_TOKENS
from unsay.kv.node import NO_PAGE, Node, jump_of_child, path_up

if TYPE_CHECKING:
    from unsay.kv.branch import Branch
    from unsay.kv.tree import KvTree


def check_tree(tree: KvTree) -> None:
    """AssertionError, with the number of the invariant and the values, if one does not hold."""
    branches = [branch for branch in tree.branches if branch.holds_nodes]
    nodes = _all_nodes(branches)
    _check_pages(tree, branches, nodes)
    _check_references(branches, nodes)
    _check_roots(tree, branches)
    for node in nodes:
        _check_node(node)
    for branch in branches:
        _check_branch(branch)
        _check_writable(branch)
    for branch in tree.branches:
        _check_state(branch)


def _all_nodes(branches: list[Branch]) -> list[Node]:
    """Every node on a path of a branch, without roots."""
    seen: dict[int, Node] = {}
    for branch in branches:
        for node in path_up(branch.tip):
            if id(node) in seen:
                break
            seen[id(node)] = node
    return list(seen.values())


def _check_pages(tree: KvTree, branches: list[Branch], nodes: list[Node]) -> None:
    pages = [node.page for node in nodes]
    pages += [page for branch in branches for page in branch.reserved]
    assert len(set(pages)) == len(pages), f"1: a page has two owners: {Counter(pages).most_common(3)}"
    assert len(pages) == tree.pool.num_used, f"1: {len(pages)} pages have owners, {tree.pool.num_used} are in use"
    assert all(tree.pool.is_used(page) for page in pages), f"1: a free page has an owner: {pages}"


def _check_references(branches: list[Branch], nodes: list[Node]) -> None:
    holders = Counter(id(branch.tip) for branch in branches)
    holders.update(id(node.parent) for node in nodes)
    roots = {id(branch.tip): branch.tip for branch in branches if branch.tip.depth == 0}
    roots |= {id(node.parent): node.parent for node in nodes if node.depth == 1}
    for node in (*nodes, *roots.values()):
        assert node.refs == holders[id(node)], f"2: {node.refs} references, {holders[id(node)]} holders: {node.tokens}"


def _check_node(node: Node) -> None:
    parent = node.parent
    assert node.depth == parent.depth + 1, f"3: depth {node.depth} under {parent.depth}"
    assert node.origin == parent.origin, f"3: origin {node.origin} under {parent.origin}"
    assert node.jump is jump_of_child(parent), f"3: depth {node.depth} jumps to {node.jump.depth}"
    assert parent.is_full, f"4: a child under {len(parent.tokens)} tokens"
    assert 1 <= len(node.tokens) <= PAGE_TOKENS and node.page != NO_PAGE, f"4: {len(node.tokens)} tokens"
    assert (parent.child(node.tokens) is node) == node.is_full, f"6: {len(node.tokens)} tokens, registered or not"
    for key, child in (node.children or {}).items():
        assert child.parent is node and child.tokens == key and child.refs > 0, f"6: wrong entry {key}"


def _check_branch(branch: Branch) -> None:
    tip = branch.tip
    if tip.depth == 0:
        assert branch.length == 0, f"5: length {branch.length} at a root"
    else:
        assert tip.start < branch.length <= tip.start + len(tip.tokens), f"5: {branch.length} at {tip.start}"
    path = [node.page for node in path_up(tip)][::-1]
    pages = path[: len(path) - branch.is_copying] + branch.reserved
    assert branch.peek_table().tolist() == pages, f"8: table {branch.peek_table()}, path and reserved {pages}"


def _check_writable(branch: Branch) -> None:
    tip = branch.tip
    if not branch.num_reserved:
        assert not branch.reserved and not branch.is_copying, f"7: pages {branch.reserved} reserved for no token"
    elif branch.length % PAGE_TOKENS and not branch.is_copying:
        assert tip.refs == 1, f"7: {tip.refs} holders of a page open for writing"
        assert tip.start + len(tip.tokens) == branch.length, f"7: tip ends at {tip.start + len(tip.tokens)}"


def _check_roots(tree: KvTree, branches: list[Branch]) -> None:
    for origin, root in tree.roots.items():
        assert root.refs > 0 and root.depth == 0 and root.origin == origin, f"9: root {origin}, {root.refs} references"
    for branch in branches:
        assert branch.tip.origin in tree.roots, f"9: {branch.tip.origin} is no root"


def _check_state(branch: Branch) -> None:
    if not branch.holds_nodes:
        assert branch.length == branch.tip.depth == branch.tip.refs == 0, f"10: {branch.state} holds {branch.length}"
        assert not branch.reserved, f"10: {branch.state} has pages reserved"
    if branch.lost_ids:
        assert branch.state.name == "DROPPED", f"10: {branch.state} lost {len(branch.lost_ids)} ids"
