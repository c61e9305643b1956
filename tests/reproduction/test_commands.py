"""`python -m reproduction`: the list of its commands, and what it says where nothing is done."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from reproduction.__main__ import STUDIES, Reproduction, main
from tests.harness import ROOT

LIMIT = 60


def test_each_study_is_a_command_of_its_name() -> None:
    for name in STUDIES:
        command = Reproduction().get_command(click.Context(main), name)
        assert command is not None
        assert command.name == name


def test_an_unknown_study_is_told() -> None:
    done = CliRunner().invoke(main, ["nothing"])
    assert (done.exit_code, "No such command 'nothing'" in done.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [["--help"], ["fitgpp", "--help"]])
def test_help_is_of_the_module(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "reproduction", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: python -m reproduction")
