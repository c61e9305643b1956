"""Checks a change in seconds: `make check`, or `make check PATHS="scheduler_service/core/engine.py docs"`.

Without paths, the files that differ from the last commit are checked. ruff checks these files, mypy and the import rules check
the packages (both use caches), and pytest runs related tests: test files among the paths, those named after a changed module,
and those that import it, or else import a module that imports it, 25 at most. Random tests run a tenth of their examples.
End-to-end tests and slow tests are left to `make test`.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PACKAGES = ("scheduler_service", "node_agent", "client_sdk", "ebb_common", "ebb_inject", "tests")
NOT_HERE = ("tests/e2e", "tests/deploy")
"""These tests start whole sites."""
MOST_TESTS = 25
"""Test files that are run: of more, those that import the least are the closest to what has changed."""


def changed_files() -> list[Path]:
    """Return the files that differ from the last commit, including new files."""
    command = ("git", "ls-files", "--modified", "--others", "--exclude-standard", "-z")
    staged = ("git", "diff", "--cached", "--name-only", "-z")
    names = {name for each in (command, staged) for name in _output(*each).split("\0") if name}
    return sorted(path for name in names if (path := HERE / name).is_file())


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True).stdout


def files_in(paths: Sequence[str]) -> list[Path]:
    """The files themselves, and all Python files of folders. Raises SystemExit for a path that there is not."""
    found: list[Path] = []
    for path in (Path(path).absolute() for path in paths):
        if not path.exists():
            raise SystemExit(f"there is no {path}")
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def module_of(file: Path) -> str:
    """The dotted name by which tests import it.

    >>> module_of(HERE / "scheduler_service" / "core" / "engine.py")
    'scheduler_service.core.engine'
    """
    parts = file.relative_to(HERE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(file: Path) -> Iterator[str]:
    """The modules, and names of modules, that a test file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def tests_beside(files: Sequence[Path]) -> list[Path]:
    """The test files that a change of these files is likely to break."""
    changed = {file for file in files if file.is_relative_to(HERE)}
    names = {f"test_{file.stem}" for file in changed}
    imported = {test: set(imports_of(test)) for test in _tests()}
    found = {test for test in imported if test in changed or test.stem in names}
    users = _users()
    for module in (module_of(file) for file in changed if file.suffix == ".py"):
        known, near = {module}, {module}
        while near and not (those := {test for test, modules in imported.items() if modules & near}):
            near = {user for each in near for user in users.get(each, ())} - known
            known |= near
        found |= those if near else set()
    closest = sorted(found, key=lambda test: (test not in changed and test.stem not in names, len(imported[test]), test))
    return sorted(closest[:MOST_TESTS])


def _tests() -> Iterator[Path]:
    for test in (HERE / "tests").rglob("test_*.py"):
        if not any(test.is_relative_to(HERE / folder) for folder in NOT_HERE):
            yield test


def _users() -> dict[str, set[str]]:
    """Return for each module those that import it."""
    users: dict[str, set[str]] = {}
    for package in PACKAGES:
        for file in (HERE / package).rglob("*.py"):
            for module in imports_of(file):
                users.setdefault(module, set()).add(module_of(file))
    return users


def main(paths: Sequence[str]) -> int:
    files = files_in(paths) if paths else changed_files()
    words = [sys.executable, str(HERE / "scripts" / "check_words.py"), *(str(file) for file in files)]
    if files and subprocess.run(words, cwd=HERE, check=False).returncode:
        return 1
    sources = [file for file in files if file.suffix == ".py"]
    if not sources:
        sys.stdout.write("no Python file has changed\n")
        return 0
    tests = tests_beside(files)
    steps = [
        [str(BIN / "ruff"), "check", *map(str, sources)],
        [str(BIN / "ruff"), "format", "--check", *map(str, sources)],
        [str(BIN / "mypy")],
        [str(BIN / "lint-imports")],
    ]
    if tests:
        steps.append(
            [
                sys.executable,
                "-m",
                "pytest",
                "-n",
                "3",
                "--dist",
                "worksteal",
                "--durations",
                "5",
                *(str(test.relative_to(HERE)) for test in tests),
            ]
        )
    for step in steps:
        status = subprocess.run(step, cwd=HERE, env=os.environ | {"EBB_EXAMPLES": "0.1"}, check=False).returncode
        if status not in (0, 5):  # 5: no test was chosen
            sys.stderr.write(f"{Path(step[0]).name} found something\n")
            return status
    sys.stdout.write(f"{len(sources)} files and {len(tests)} test files are as they should be; `make test` checks the rest\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
