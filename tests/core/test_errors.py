"""User errors: one line, four fields, and a documented code."""

import pickle
import re
import unicodedata
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftseg.core.errors import Code, UserError, in_one_line, visible
from graftseg.core.names import has_control_characters

ROOT = Path(__file__).parents[2]
errors_page = SourceFileLoader("errors_page", str(ROOT / "docs" / "errors.py")).load_module()


def test_an_error_is_one_sentence_and_a_code() -> None:
    error = UserError(Code.OPTION_INVALID, "scan.nii.gz", "truncated", "copy it again")
    assert str(error) == "scan.nii.gz: truncated; copy it again. [option-invalid]"
    fields = {"code": "option-invalid", "where": "scan.nii.gz", "finding": "truncated", "remedy": "copy it again"}
    assert error.to_json() == pickle.loads(pickle.dumps(error)).to_json() == fields


def test_three_dots_end_a_sentence() -> None:
    assert str(UserError(Code.LABEL_INVALID, "a", "b", "number them 0, 1, ...")).endswith(" 0, 1, ... [label-invalid]")


def test_control_characters_in_names_are_escaped() -> None:
    error = UserError(Code.OPTION_INVALID, "a\x1b[31mX\x07\nb é 漢.nii.gz", "truncated", "copy it again")
    assert str(error) == r"a\x1b[31mX\x07\nb é 漢.nii.gz: truncated; copy it again. [option-invalid]"
    assert error.where == "a\x1b[31mX\x07\nb é 漢.nii.gz"


@given(st.text())
def test_no_hidden_character_remains(text: str) -> None:
    """Control characters, surrogates, line separators and invisible characters become escapes."""
    shown = visible(text)
    assert not [character for character in shown if has_control_characters(character) and character not in "\n\t"]
    assert all(unicodedata.category(character) != "Cf" or character in "\u200c\u200d" for character in shown)
    assert visible(shown) == shown
    assert in_one_line(text).isprintable()


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp", "Co", "Cn"])))
def test_visible_text_is_unchanged(text: str) -> None:
    assert visible(f"{text}\n\t") == f"{text}\n\t"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\u202egpj.exe", r"a\u202egpj.exe"),
        ("\u2066a\u2069", r"\u2066a\u2069"),
        ("\r\x9b\x7f", r"\r\x9b\x7f"),
        ("\ud800", r"\ud800"),
        ("5\xa0mm, \u200d", "5\xa0mm, \u200d"),
    ],
)
def test_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_every_code_is_documented() -> None:
    entries = errors_page.entries()
    assert {*entries} == {*Code}
    incomplete = [code for code, entry in entries.items() if {*entry} - {"example"} != {"cause", "fix"}]
    assert not incomplete


def test_the_page_of_errors_is_up_to_date() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert page == errors_page.page(), "run: python docs/errors.py > docs/reference/errors.md"


def test_every_code_is_raised() -> None:
    files = [path for path in (ROOT / "src").rglob("*.py") if path.name != "errors.py"]
    used = {name for path in files for name in re.findall(r"\bCode\.([A-Z_]+)", path.read_text())}
    assert used == {code.name for code in Code}


def test_codes_are_sorted_and_named_alike() -> None:
    assert [*Code] == sorted(Code)
    assert not [code for code in Code if code.value != code.name.lower().replace("_", "-")]


@pytest.mark.parametrize("field", ["cause", "fix"])
def test_the_documentation_is_in_sentences(field: str) -> None:
    texts = {code: entry[field] for code, entry in errors_page.entries().items()}
    assert not {code: text for code, text in texts.items() if not text.endswith(".") and "/" not in text.split()[-1]}
