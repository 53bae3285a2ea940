"""Helpers of the formats."""

from pathlib import Path

import pytest

from graftseg.data.formats.scan import short_reason, without_folder


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("cannot open '/a/b/c.png'", "/a/b/c.png", "cannot open 'c.png'"),
        ("in /a/b/c.mhd: /a/b/c.raw is short", "/a/b/c.mhd", "in c.mhd: c.raw is short"),
        ("in b/c.png of mab/c.png", "b/c.png", "in c.png of mab/c.png"),
        ("1/2 of c.png", "/c.png", "1/2 of c.png"),
        ("1/2 of ./c.png", "c.png", "1/2 of ./c.png"),
        (r"cannot open 'x\\y\\c.png'", r"x\y/c.png", "cannot open 'c.png'"),
    ],
)
def test_the_folder_is_removed_from_a_text(text: str, path: str, expected: str) -> None:
    assert without_folder(text, Path(path)) == expected


def test_links_to_the_folder_are_removed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Jane").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "Jane")
    monkeypatch.chdir(tmp_path)
    text = f"{tmp_path}/Jane/a.png and {tmp_path}/link/a.png and link/a.png"
    assert without_folder(text, Path("link/a.png")) == "a.png and a.png and a.png"


def test_reasons_are_shortened_after_the_folder_is_removed() -> None:
    folder = "/" + 200 * "x"
    assert short_reason(ValueError(f"no\n  picture:  {folder}/a.png"), Path(folder) / "a.png") == "no picture: a.png"
    assert short_reason(ValueError("y" * 200), Path("a.png")) == "y" * 120
