"""Find the banned phrases in the project's prose: comments and docstrings of Python files, comments of protos and settings,
and the documentation, outside of code. `make lint` fails where one is used that ALLOWED does not name.

    python scripts/check_words.py             # all files but those that git ignores
    python scripts/check_words.py docs client_sdk

Texts that the programs print are not looked at, nor are tests.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent.parent
BANNED = {
    "told to leave": "told to stop, preempted",
    "told of": "told about",
    "for want of": "for lack of, because there is no",
    "so often": "name the number",
    "be it": "whether",
    "as was": "name what it was",
    "of its own accord": "on its own",
    "anew": "again, from scratch",
    "for ever": "forever, indefinitely",
    "nobody leads": "no scheduler leads",
    "stands": "is, is written",
    "there is none": "say what is missing",
    "whoever": "any, each, the user who",
    "leaves with": "exits with",
    "go on": "continue, resume",
    "goes on": "continues, resumes",
    "is over": "has ended",
    "beside": "next to, besides, in addition to",
}
OPENINGS = ("Of", "What", "By", "Where", "Has", "Whose", "Whom", "So", "Be")
"""With these no docstring begins: it begins with a noun or a verb."""
MESSAGES = "the docstrings of errors are their messages, which are texts that users read"
ALLOWED: dict[tuple[str, str], tuple[int, str]] = {
    ("docs/reproduction.md", "so often"): (1, "the title of a table that reproduction/fitgpp/tables.py writes"),
    ("node_agent/errors.py", "goes on"): (1, MESSAGES),
    ("node_agent/errors.py", "whoever"): (1, MESSAGES),
    ("node_agent/errors.py", "beside"): (1, MESSAGES),
    ("node_agent/errors.py", "stands"): (1, MESSAGES),
    ("scheduler_service/store/errors.py", "is over"): (1, MESSAGES),
    ("scheduler_service/store/errors.py", "a docstring that begins with What"): (1, MESSAGES),
}
"""(file, phrase) -> the number of uses that it may have, and why."""
MOST = 20
"""Uses that may be allowed in all."""


NAME = "check_words.py"


class Prose(NamedTuple):
    line: int
    text: str
    is_docstring: bool = False


def prose_of(path: Path) -> Iterator[Prose]:
    """The prose of a file, in pieces. Raises SyntaxError for Python that cannot be parsed."""
    text = path.read_text()
    if path.suffix == ".py":
        yield from python_prose(text)
    elif path.suffix == ".md":
        yield Prose(1, without_code(text))
    elif path.suffix == ".proto":
        yield from joined((n, line.partition("//")[2]) for n, line in enumerate(text.splitlines(), 1) if "//" in line)
    else:
        yield from joined((n, line.partition("#")[2]) for n, line in enumerate(text.splitlines(), 1) if "#" in line)


def python_prose(text: str) -> Iterator[Prose]:
    comments = (each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type == tokenize.COMMENT)
    yield from joined((each.start[0], each.string.lstrip("#")) for each in comments)
    for node in ast.walk(ast.parse(text)):
        for each in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
                yield Prose(each.lineno, re.sub(r"`[^`]*`", "`code`", each.value.value), is_docstring=True)


def joined(lines: Iterator[tuple[int, str]]) -> Iterator[Prose]:
    """Lines that follow each other, as one text each: a phrase may be broken between them."""
    start, last, texts = 0, -1, list[str]()
    for number, text in lines:
        if number != last + 1 and texts:
            yield Prose(start, "\n".join(texts))
            texts = []
        if not texts:
            start = number
        texts.append(re.sub(r"`[^`]*`", "`code`", text))
        last = number
    if texts:
        yield Prose(start, "\n".join(texts))


def without_code(text: str) -> str:
    """Markdown with its code blocks, inline code and quotations of papers blanked; lines stay where they are."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    text = re.sub(r"^( *)```.*?^\1```", blank, text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`|^>.*$", blank, text, flags=re.MULTILINE)


PHRASES = re.compile(r"\b(" + "|".join(re.sub(" ", r"\\s+", each) for each in BANNED) + r")\b", re.IGNORECASE)
FIRST = re.compile(r"\s*(\w+)\b")


def uses(path: Path) -> Iterator[tuple[int, str]]:
    """(line, phrase) of each use of a banned phrase or opening."""
    for prose in prose_of(path):
        for found in PHRASES.finditer(prose.text):
            line = prose.line + prose.text.count("\n", 0, found.start())
            yield line, re.sub(r"\s+", " ", found[0].lower())
        first = FIRST.match(prose.text)
        if prose.is_docstring and first and first[1] in OPENINGS:
            yield prose.line, f"a docstring that begins with {first[1]}"


def files(under: list[str]) -> list[Path]:
    """The files to check, new ones included. `under` is relative to the project's root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *under]
    listed = subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True).stdout.splitlines()
    kinds = {".py", ".md", ".proto", ".toml", ".yml", ".yaml", ".sh", ".service"}
    named = (HERE / name for name in listed if not name.startswith(("tests/", "third_party/")) and name != "CHANGELOG.md")
    return [
        path for path in named if path.suffix in kinds and path.is_file() and not path.match("*_pb2*") and path.name != NAME
    ]


def main(under: list[str]) -> int:
    if missing := [path for path in under if not (HERE / path).exists()]:
        print(f"no such file or folder: {', '.join(missing)}", file=sys.stderr)
        return 2
    wrong = 0
    for path in files(under):
        name = path.relative_to(HERE).as_posix()
        found = list(uses(path))
        counts = Counter(phrase for _, phrase in found)
        for line, phrase in sorted(found):
            allowed, _ = ALLOWED.get((name, phrase), (0, ""))
            if counts[phrase] > allowed:
                wrong += 1
                hint = f": {BANNED[phrase]}" if phrase in BANNED else ""
                print(f"{name}:{line}: {phrase!r}{hint}")
    if (total := sum(count for count, _ in ALLOWED.values())) > MOST:
        wrong += 1
        print(f"{total} uses are allowed, and there may be {MOST}")
    if wrong:
        print(f"{wrong} banned phrases; see BANNED and ALLOWED in scripts/check_words.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
