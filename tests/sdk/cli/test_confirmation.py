"""What is asked before something is lost: on a terminal, elsewhere, and with --force."""

import sys
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

from client_sdk.cli import confirmation


class Terminal:
    """Standard input that claims to be a terminal, or not."""

    def __init__(self, inner: Any, is_one: bool) -> None:
        self._inner = inner
        self._is_one = is_one

    def isatty(self) -> bool:
        return self._is_one

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def command(done: list[str], is_terminal: bool) -> click.Command:
    @click.command()
    @confirmation.force_option
    @click.option("--loses", multiple=True)
    def change(force: bool, loses: tuple[str, ...]) -> None:
        sys.stdin = Terminal(sys.stdin, is_terminal)
        confirmation.confirm(loses, "Go on?", force)
        done.append("done")

    return change


@pytest.mark.parametrize("loses", [(), ("job 7 loses its work",), ("job 7 loses its work", "job 8 too")])
@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("answer", ["y\n", "n\n", "\n", ""])
def test_is_done_exactly_if_nothing_is_lost_or_somebody_has_agreed(
    loses: tuple[str, ...], is_terminal: bool, force: bool, answer: str
) -> None:
    done: list[str] = []
    arguments = [part for loss in loses for part in ("--loses", loss)] + (["--force"] if force else [])
    run: Callable[..., Any] = CliRunner().invoke
    result = run(command(done, is_terminal), arguments, input=answer)
    agreed = not loses or force or (is_terminal and answer == "y\n")
    assert (bool(done), result.exit_code, result.stdout) == (agreed, 0 if agreed else 1, "")
    asked = bool(loses) and not force
    assert all((loss in result.stderr) is asked for loss in loses)
    assert ("--force" in result.stderr) is (asked and not is_terminal)
    assert ("Go on?" in result.stderr) is (asked and is_terminal)
