"""The check of the project's prose (`scripts/check_words.py`, a part of `make lint`)."""

from pathlib import Path

import pytest

from scripts import check_words


def found(tmp_path: Path, name: str, text: str) -> list[tuple[int, str]]:
    path = tmp_path / name
    path.write_text(text)
    return list(check_words.uses(path))


@pytest.mark.parametrize(
    ("name", "text", "uses"),
    [
        ("a.py", '"""Where the runs go on."""\n', [(1, "go on"), (1, "a docstring that begins with Where")]),
        ("a.py", "x = 1  # it goes\n# on\n", [(1, "goes on")]),
        ("a.py", "x = 1\n# whoever asks\n", [(2, "whoever")]),
        ("a.py", 'class A:\n    a: int\n    """Of the job."""\n', [(3, "a docstring that begins with Of")]),
        ("a.py", 'print("it goes on")\n', []),
        ("a.py", '"""The function `goes_on`, and `it goes on`."""\n', []),
        ("a.py", "x = 1  # at 3.2 it goes up\n# on Mondays\n", []),
        ("a.md", "It is\nover.\n\n```\nit goes on\n```\n", [(1, "is over")]),
        ("a.md", "The line `it goes on` is printed.\n\n> as the paper says, it goes on\n", []),
        ("a.proto", "// Made anew.\nmessage A {}  // beside it\n", [(1, "anew"), (2, "beside")]),
        ("a.yml", "a: 1\n# nobody leads\n", [(2, "nobody leads")]),
    ],
)
def test_phrases_are_found_in_prose_alone(tmp_path: Path, name: str, text: str, uses: list[tuple[int, str]]) -> None:
    assert found(tmp_path, name, text) == uses


def test_a_use_that_is_not_allowed_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_words, "HERE", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("It goes on.\nIt goes on.\n")
    monkeypatch.setattr(check_words, "files", lambda _: [page])
    assert check_words.main([]) == 1
    assert "page.md:1: 'goes on': continues, resumes" in capsys.readouterr().out
    monkeypatch.setattr(check_words, "ALLOWED", {("page.md", "goes on"): (1, "one is a quotation")})
    assert check_words.main([]) == 1
    monkeypatch.setattr(check_words, "ALLOWED", {("page.md", "goes on"): (2, "both are")})
    assert check_words.main([]) == 0
    monkeypatch.setattr(check_words, "ALLOWED", {("page.md", "goes on"): (check_words.MOST + 1, "too many")})
    assert check_words.main([]) == 1


def test_a_path_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_words.main(["docs", "nope"]) == 2
    assert capsys.readouterr().err == "no such file or folder: nope\n"


def test_each_use_that_is_allowed_is_there_and_has_a_reason() -> None:
    for (name, phrase), (count, reason) in check_words.ALLOWED.items():
        assert [each for _, each in check_words.uses(check_words.HERE / name)].count(phrase) == count
        assert len(reason.split()) > 2
