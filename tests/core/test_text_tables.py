"""Text tables: complete, not wider than the terminal, and with tabs in pipes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from graftseg.cli.output import print_table
from graftseg.core.text_tables import TextTable, format_table
from graftseg.evaluation.comparison import HEAD as COMPARISON
from graftseg.inference.ranking.rank import HEAD as RANKING

SCORES = ("class", "Dice %", "95HD voxel", "volume error ml")
COMPARED = [
    ("Dice %", "anterior", "40", "84.33", "86.29", "+1.95", "+1.03 to +2.90", "8.3e-05", "31/9/0"),
    ("Dice %", "posterior", "40", "81.91", "84.24", "+2.33", "+1.11 to +3.53", "0.00015", "32/8/0"),
]
RANKED = [
    ("1", "case_7", "0.602", "0.215", "2.121", "0.812", "0", "uncertain at the boundary; looks unlike the others")
]


def lines_of(table: TextTable) -> list[str]:
    return [*table.head, *table.body]


def test_a_table_that_fits() -> None:
    table = format_table(SCORES, [("left", "86.29", "1.62", "-0.13"), ("mean", "6.29", "11.62", "-")], 80)
    assert table == TextTable(
        ["class  Dice %  95HD voxel  volume error ml"],
        [
            "left    86.29        1.62            -0.13",
            "mean     6.29       11.62                -",
        ],
    )


def test_column_names_are_broken_first() -> None:
    table = format_table(SCORES, [("left", "86.29", "1.62", "-0.13")], 30)
    assert lines_of(table) == [
        "                     volume",
        "        Dice   95HD   error",
        "class      %  voxel      ml",
        "left   86.29   1.62   -0.13",
    ]


def test_a_comparison_at_80_columns() -> None:
    table = format_table(COMPARISON, COMPARED, 80)
    assert table.body == [
        "Dice % anterior     40 84.33  86.29      +1.95 +1.03 to +2.90 8.3e-05 31/9/0",
        "Dice % posterior    40 81.91  84.24      +2.33 +1.11 to +3.53 0.00015 32/8/0",
    ]
    assert table.head[-1] == "metric class     cases first second difference 95 % interval        p equal"
    assert [line.strip() for line in table.head[:2]] == ["better/", "worse/"]


def test_wide_columns_are_below_their_row() -> None:
    assert lines_of(format_table(RANKING, RANKED, 64)) == [
        "rank  case    score  uncertainty  unlike   size  specks",
        "   1  case_7  0.602        0.215   2.121  0.812       0",
        "      reasons: uncertain at the boundary; looks unlike the",
        "      others",
    ]


def test_long_paths_are_not_broken() -> None:
    path = "/data/" + "x" * 90
    table = format_table(("", "finding", "where"), [("note", "odd", path)], 40)
    assert table.body == ["note  odd", "      where:", f"      {path}"]


def test_control_characters_and_wide_letters() -> None:
    table = format_table(("case", "n"), [("a\x1b[2J\nb", "1"), ("心臓", "12")], 80)
    assert table == TextTable(["case         n"], [r"a\x1b[2J b   1", "心臓        12"])


def test_wide_letters_below_a_row() -> None:
    table = format_table(("case", "why"), [("a", "心臓 " * 9)], 20)
    assert table.body == ["a", "      why: 心臓 心臓", *["      心臓 心臓 心臓"] * 2, "      心臓"]


cells = st.text("ab /-.1心", max_size=12)


@given(st.data(), st.integers(1, 5), st.integers(30, 90))
def test_nothing_is_lost_and_nothing_is_too_wide(data: st.DataObject, count: int, width: int) -> None:
    head = data.draw(st.lists(cells, min_size=count, max_size=count))
    rows = data.draw(st.lists(st.lists(cells, min_size=count, max_size=count), max_size=4))
    table = format_table(head, rows, width)
    # every word fits the terminal, so every line must fit
    assert all(cell_len(line) <= width for line in lines_of(table))
    text = "".join("".join(table.body).split())
    for row in rows:
        for cell in row:
            for word in cell.split():
                assert word in text
    assert len(table.body) >= len(rows)


def test_a_terminal_has_no_boxes_and_a_pipe_has_tabs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    print_table(COMPARISON, COMPARED)
    assert capsys.readouterr().out == "".join("\t".join(line) + "\n" for line in (COMPARISON, *COMPARED))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    print_table(COMPARISON, COMPARED)
    printed = capsys.readouterr().out.splitlines()
    assert printed[3:] == format_table(COMPARISON, COMPARED, 80).body
    assert not set("".join(printed)) & set("│┃─━┏┓")
