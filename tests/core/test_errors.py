"""User errors: one line, four fields, and a documented code."""

import pickle
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from graftseg.core.errors import Code, UserError

ROOT = Path(__file__).parents[2]
errors_page = SourceFileLoader("errors_page", str(ROOT / "docs" / "errors.py")).load_module()


def test_an_error_is_one_sentence_and_a_code() -> None:
    error = UserError(Code.OPTION_INVALID, "scan.nii.gz", "truncated", "copy it again")
    assert str(error) == "scan.nii.gz: truncated; copy it again. [option-invalid]"
    fields = {"code": "option-invalid", "where": "scan.nii.gz", "finding": "truncated", "remedy": "copy it again"}
    assert error.to_json() == pickle.loads(pickle.dumps(error)).to_json() == fields


def test_control_characters_in_names_are_escaped() -> None:
    error = UserError(Code.OPTION_INVALID, "a\x1b[31mX\x07\nb é 漢.nii.gz", "truncated", "copy it again")
    assert str(error) == r"a\x1b[31mX\x07\nb é 漢.nii.gz: truncated; copy it again. [option-invalid]"
    assert error.where == "a\x1b[31mX\x07\nb é 漢.nii.gz"


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
