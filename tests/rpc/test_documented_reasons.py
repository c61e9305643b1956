"""The tables of errors in docs/api.md are whole: every reason that the code can give, with the keys of its metadata, is in
them, and each reason occurs in a test."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import grpc

from scheduler_service.rpc.interceptors import _CODES as REFUSALS

ROOT = Path(__file__).parents[2]
_REASON = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_STATUSES = frozenset(code.name for code in grpc.StatusCode)
_MAKES = frozenset({"Refused", "__init__", *(kind.__name__ for kind in REFUSALS)})
"""What is called with a reason: the errors, and `super().__init__` in a subclass of them."""
Reasons = dict[str, set[str]]
"""The keys of the metadata of each, wherever it is given."""


def documented() -> Reasons:
    """The second and the last column of the tables of errors."""
    found: Reasons = defaultdict(set)
    text = (ROOT / "docs" / "api.md").read_text()
    for line in text[text.index("## Errors") :].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in _STATUSES:
            assert len(cells) == 4, line
            for reason in cells[1].split(", "):
                found[reason] |= set(re.findall(r"`(\w+)`", cells[3]))
    return dict(found)


@cache
def given() -> Reasons:
    """What the scheduler's code names: the first argument of an error with its keywords, and what `status_of` gives itself."""
    found: Reasons = defaultdict(set)
    for path in (ROOT / "scheduler_service").rglob("*.py"):
        module = ast.parse(path.read_text())
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and _name(node.func) in _MAKES and node.args:
                reasons, keys = _strings([node.args[0]]), _keywords(node, module)
            elif isinstance(node, ast.match_case) and path.name == "interceptors.py":
                reasons, keys = _strings(node.body), _keys("metadata", node.body)
            else:
                continue
            for reason in reasons:
                found[reason] |= keys
    return dict(found)


def occurring() -> set[str]:
    """What tests assert, or hand to a helper that does: any string of theirs that is a reason."""
    found: set[str] = set()
    for folder in ("rpc", "e2e", "agent", "store", "core", "policies", "sdk"):
        for path in (ROOT / "tests" / folder).glob("*.py"):
            if path != Path(__file__):
                found |= set(_strings([ast.parse(path.read_text())]))
    return found


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _keywords(call: ast.Call, module: ast.Module) -> set[str]:
    """Of `**name` the keys of the dictionaries that the module gives that name."""
    named = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
    return named.union(*(_keys(ast.unparse(keyword.value), [module]) for keyword in call.keywords if keyword.arg is None))


def _keys(name: str, trees: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and ast.unparse(node.targets[0]) == name:
            found |= {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    return found


def _strings(trees: Iterable[ast.AST]) -> Iterator[str]:
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _REASON.fullmatch(node.value):
            yield node.value


def test_every_reason_is_documented() -> None:
    missing = set(given()) - set(documented()) - {"NO_LIVE_JOB"}  # whether it has ended is found out before anybody is told
    assert missing == set(), "docs/api.md, Errors: say when these occur"


def test_every_documented_reason_can_occur() -> None:
    assert set(documented()) - set(given()) == set(), "nothing in the code gives these"


def test_the_metadata_of_every_reason_is_documented() -> None:
    here = documented()
    assert here == {reason: given().get(reason) for reason in here}, "docs/api.md, Errors: the last column names the keys"


def test_every_documented_reason_occurs_in_a_test() -> None:
    assert set(documented()) - occurring() == set(), "no test provokes these"
