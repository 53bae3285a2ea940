"""CSV tables: texts survive a round trip and are never formulas."""

import csv
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftseg.core.csv_tables import csv_text, read_csv_rows
from graftseg.core.files import write_text
from loops import for_each


@given(st.lists(st.text(st.sampled_from("=+-@\t\r\n'\"1e.a, ")) | st.floats(-9, 9), min_size=1))
def test_texts_survive_a_round_trip_and_are_never_formulas(
    tmp_path_factory: pytest.TempPathFactory, cells: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("tables") / "a.csv"
    write_text(path, csv_text([["cell"], *([cell] for cell in cells)]))
    with path.open(newline="") as stream:
        written = [line[0] if line else "" for line in list(csv.reader(stream))[1:]]
    assert not [cell for cell in written if cell[:1] in tuple("=+-@\t\r\n") and not is_number(cell)]
    assert [row["cell"] for row in read_csv_rows(path)] == [str(cell) for cell in cells]


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@for_each("text", ["-1", "+2.5", "-3e-05", "-.5", "a=1", "", None, -1.0])
def test_numbers_and_other_texts_get_no_apostrophe(text: str | float | None) -> None:
    assert csv_text([["x", text]]) == f"x,{'' if text is None else text}\n"


@pytest.mark.parametrize("text", ["=1+2", "-1-2", "@SUM(A1)", "+a", "-", "1"])
def test_cells_that_start_a_formula(text: str) -> None:
    assert csv_text([["x", text]]) == f"x,{chr(39) if text != '1' else ''}{text}\n"
