"""Policies propose, and suppose what they try (`State.supposing`): they change no index themselves, and undo nothing.

`Driver` sees that a policy leaves nothing behind; here their code is read.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.state.journal import Journal
from scheduler_service.core.state.resources.free_resources import FreeResources
from scheduler_service.core.state.resources.idle_groups import IdleGroups
from scheduler_service.core.state.state import State

ROOT = Path(__file__).parents[2]
FILES = [
    path
    for folder in ("scheduler_service/policies", "scheduler_service/sim/policies")
    for path in sorted((ROOT / folder).rglob("*.py"))
]

CHANGES: Mapping[type, set[str]] = {
    Pool: {"bind", "set_guaranteed", "set_node", "set_opportunistic", "set_quota", "unbind"},
    Pools: {"hold", "set_binding", "set_exchanged", "set_node", "set_vc"},
    FreeResources: {"give", "set_node", "take"},
    IdleGroups: {"forget_tree", "update_offers"},
    Journal: {"undo"},
    State: {"adopt", "restore", "savepoint", "undo"},
}
"""Methods that change what they belong to; `Journal.put`, which `State.put` is, changes rows."""
QUESTIONS: Mapping[type, set[str]] = {
    Pool: {
        *("all_to_bind", "available", "balance", "bound_at", "bound_of", "costs_nobody", "count_doomed", "fitting"),
        *(
            "healthy",
            "held_leaves",
            "holds",
            "idle_leaves",
            "idle_sizes",
            "last_whole",
            "leaves",
            "opportunistic",
            "rebuild",
            "safe_to_split",
        ),
        *("shortfall", "snapshot", "unit_from", "unit_sizes", "units", "units_at", "visited_nodes"),
    },
    Pools: {
        "share_per_device",
        "device_memory_mib",
        "usable_mib",
        "exists",
        "has_cells_in",
        "in_order",
        "place_left_out",
        "share",
        "snapshot",
        "tops",
    },
    FreeResources: {
        *("any_device_beside", "any_open", "capacities", "capacity_of", "could_ever_fit", "could_ever_fit_all", "first_fit"),
        *("fitting", "free", "nodes_with_free", "is_open", "keeping", "offered_resources", "shapes", "snapshot", "total_cpu"),
    },
    IdleGroups: {"best_first", "snapshot", "tree"},
}
ELSEWHERE_TOO = {"give", "take"}
"""Also methods of others, such as arrays: they count where what they are called on is known to be `FreeResources`."""
FORBIDDEN = set().union(*CHANGES.values())


@pytest.mark.parametrize("kind", list(QUESTIONS))
def test_each_method_is_known_to_change_something_or_not(kind: type) -> None:
    methods = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    assert methods == CHANGES[kind] | QUESTIONS[kind]
    assert not CHANGES[kind] & QUESTIONS[kind]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "scheduler_service")))
def test_no_policy_changes_an_index_or_undoes_by_hand(path: Path) -> None:
    assert not list(_wrong(ast.parse(path.read_text())))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("pool.bind(level, index, owner)", "calls bind"),
        ("state.pools.hold(node, 0, 0)", "calls hold"),
        ("state.free_resources.take(node, demand)", "calls take"),
        ("def f(host: FreeResources):\n    host.give(node, demand)", "calls give"),
        ("room = state.host\nroom.take(node, demand)", "calls take"),
        ("state.undo(before)", "calls undo"),
        ("state.pending.policies = True", "sets state.pending.policies"),
        ("state.changed_runs[key] = True", "sets state.changed_runs[key]"),
        ("del state.runs.rows[key]", "sets state.runs.rows[key]"),
        ("state.idle_devices[node] |= 1", "sets state.idle_devices[node]"),
        ("state.pools.nodes, other = 1, 2", "sets state.pools.nodes"),
        ("def f():\n    with state.supposing():\n        yield plan", "proposes a plan inside a supposition"),
        ("def f():\n    with state.supposing():\n        yield from plans()", "proposes a plan inside a supposition"),
        ("def f():\n    with room.keeping(kept):\n        yield plan", "proposes a plan while something is kept"),
        ("put = pool.set_guaranteed", "calls set_guaranteed"),
        ("column.take(slots)\nplaces['bind'] = state.put(table, key, row)\nseen.add(1)", None),
        ("with state.supposing():\n    state.put(state.runs, key, None)", None),
    ],
)
def test_what_is_found(code: str, found: str | None) -> None:
    """And what is not."""
    assert list(_wrong(ast.parse(dedent(code)))) == ([found] if found else [])


def _wrong(tree: ast.Module) -> Iterator[str]:
    rooms = set(_rooms(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in FORBIDDEN:
                if name not in ELSEWHERE_TOO or _last_name(node.value) in rooms:
                    yield f"calls {name}"
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                if _first_name(node) in ("state", "pools"):
                    yield f"sets {ast.unparse(node)}"
            case ast.With() if any("supposing" in ast.unparse(item) for item in node.items):
                if any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node)):
                    yield "proposes a plan inside a supposition"
            case ast.With() if any(".keeping(" in ast.unparse(item) for item in node.items):
                if any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node)):
                    yield "proposes a plan while something is kept"


def _rooms(tree: ast.Module) -> Iterator[str]:
    """Names of what is `FreeResources`."""
    yield from ("free_resources", "host")
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None and "FreeResources" in ast.unparse(node.annotation):
            yield node.arg
        elif isinstance(node, ast.Assign) and _last_name(node.value) in ("free_resources", "host"):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _first_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
