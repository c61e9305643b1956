"""The table of reasons in docs/api.md is whole: every reason that the code can give is in it, and each occurs in a test."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grpc

ROOT = Path(__file__).parents[2]
_REASON = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_CODES = frozenset(code.name for code in grpc.StatusCode)
_REFUSALS = frozenset(
    {"Refused", "NotFound", "AlreadyExists", "FailedPrecondition", "InvalidArgument", "Unauthenticated", "PermissionDenied"}
    | {"OutOfRange", "ResourceExhausted", "Unavailable", "_refuse"}
)


def documented() -> set[str]:
    """The second column of the tables of errors."""
    found: set[str] = set()
    text = (ROOT / "docs" / "api.md").read_text()
    for line in text[text.index("## Errors") :].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) >= 3 and cells[0] in _CODES:
            found |= {reason for reason in re.split(r"[,\s]+", cells[1]) if _REASON.fullmatch(reason)}
    return found


@cache
def given() -> set[str]:
    """What the scheduler's code names: the first argument of a refusal, and what `status_of` gives itself."""
    found: set[str] = set()
    for path in (ROOT / "scheduler_service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) in _REFUSALS and node.args:
                found |= set(_strings(node.args[0]))
            if isinstance(node, ast.Call) and _name(node.func) == "__init__" and node.args:  # of a subclass
                found |= set(_strings(node.args[0]))
            if path.name == "interceptors.py" and isinstance(node, ast.Assign):
                found |= set(_strings(node.value))
    return found


def occurring() -> set[str]:
    """What tests assert, or hand to a helper that does: any string of theirs that is a reason."""
    found: set[str] = set()
    for folder in ("rpc", "e2e", "agent", "store", "core", "policies", "sdk"):
        for path in (ROOT / "tests" / folder).glob("*.py"):
            if path != Path(__file__):
                found |= set(_strings(ast.parse(path.read_text())))
    return found


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _REASON.fullmatch(node.value):
            yield node.value


def test_every_reason_is_documented() -> None:
    missing = given() - documented() - {"NO_LIVE_JOB"}  # whether it has ended is found out before anybody is told
    assert missing == set(), "docs/api.md, Errors: say when these occur"


def test_every_documented_reason_can_occur() -> None:
    assert documented() - given() == set(), "nothing in the code gives these"


def test_every_documented_reason_occurs_in_a_test() -> None:
    assert documented() - occurring() == set(), "no test provokes these"
