"""Which arguments of commands a site keeps from everybody but the job's owner and operators. Pure."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate

HIDDEN = "(hidden)"
_BETWEEN = re.compile(r"[\s;|&()<>'\"`$]+")
"""Separators of words in a shell script."""


def problem(pattern: str) -> str:
    """Return why this is not a valid pattern; empty if it is."""
    if not pattern.strip("*=") or re.search(r"\s", pattern):
        return f"{pattern!r} is not an option, such as --token, nor like *_KEY=*"
    if "=" not in pattern and pattern.endswith("*"):
        return f"{pattern!r} ends with *, which would also name other options: write each option in full, or NAME=*"
    return ""


class SecretArguments:
    """Patterns of two kinds, with the wildcards of a shell. One without `=`, such as `--token`, names an option: what is
    hidden is the next argument, or what follows in `--token=...`. One with `=`, such as `*_KEY=*`, is for arguments like
    `AWS_KEY=...`, and hides what follows the `=`. If such a word is inside a longer argument, as in a script for
    `sh -c`, the whole argument is hidden: it is not parsed as a shell would."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        each = list(patterns)
        self._option = _any(pattern for pattern in each if "=" not in pattern)
        self._pair = _any(pattern for pattern in each if "=" in pattern)
        self.none = not each

    def hide(self, command: Sequence[str]) -> tuple[str, ...]:
        """The command, with HIDDEN for all that is secret."""
        shown, follows = [], False
        for word in command:
            shown.append(HIDDEN if follows else self._show_word(word))
            follows = self._option(word)
        return tuple(shown)

    def _show_word(self, word: str) -> str:
        name, given, _ = word.partition("=")
        if given and (self._option(name) or self._pair(word)):
            return f"{name}={HIDDEN}"
        parts = _BETWEEN.split(word)
        if len(parts) > 1 and any(self._option(part.partition("=")[0]) or self._pair(part) for part in parts):
            return HIDDEN
        return word


def _any(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a word is one of these."""
    each = "|".join(map(translate, patterns))
    matches = re.compile(each).fullmatch
    return lambda word: bool(each) and matches(word) is not None
