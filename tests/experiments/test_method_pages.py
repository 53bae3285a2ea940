"""The script that writes our figures into the pages of the methods."""

from pathlib import Path

import pytest

from markdown_pages import DOCS, ROOT, load
from record_fakes import record

script = load(DOCS / "method_pages.py")
PAGE = "# a\n\n## Our results\n\nold\n\n## Known differences\n"


@pytest.mark.slow
def test_the_pages_in_the_docs_are_up_to_date() -> None:
    made = script.made_pages(script.PAGES, ROOT / "results")
    assert len(made) > 10
    outdated = [page.name for page, text in made.items() if page.read_text(encoding="utf-8") != text]
    assert not outdated, f"run make docs to update {outdated}"
    assert all("## Our results\n" in text for page, text in made.items() if page.name != "README.md")


def test_a_page_has_recorded_figures_and_a_comparison(shipped: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        record(tmp_path, "la-8/bcp", seed, 0.5 + 0.25 * seed)
    record(tmp_path, "la-8/supervised", 0, 0.25)
    text = script.filled(PAGE, "bcp", tmp_path)
    assert "| la-8/bcp | - | 0, 1 | last | 62.50 ± 17.68 |" in text
    assert "| la-8/bcp | - | 0 | 100 | 100 | 25.00 | 50.00 | +25.00 |" in text
    assert "old" not in text and text.endswith("\n\n## Known differences\n")
    assert script.filled(text, "bcp", tmp_path) == text


def test_a_page_shows_the_best_checkpoint_on_validation(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "acdc-3/bcp", 0, 0.5, best=0.75, best_checkpoint="best on validation, step 4")
    text = script.filled(PAGE, "bcp", tmp_path)
    assert "| acdc-3/bcp | - | 0 | last | 50.00 |" in text
    assert "| acdc-3/bcp | - | 0 | best on validation | 75.00 |" in text


def test_a_page_without_records(shipped: Path, tmp_path: Path) -> None:
    section = "## Our results\n\nNothing is recorded yet.\n"
    assert script.filled(PAGE, "dtc", tmp_path) == f"# a\n\n{section}\n## Known differences\n"
    assert script.filled("# a\n\n## Our results\n\nold\n", "dtc", tmp_path) == f"# a\n\n{section}"


def test_the_list_of_methods(tmp_path: Path) -> None:
    for name, seed, value, variant in (
        ("la-4/bcp", 0, 0.5, "short"),
        ("la-4/bcp", 1, 0.75, "short"),
        ("la-4/bcp", 0, 0.875, "fast"),
        ("acdc-3/mixup", 0, 0.25, "short"),
        ("acdc-3/bcp", 0, 0.25, "shorter"),
    ):
        record(tmp_path, name, seed, value, variant=variant)
    record(tmp_path, "la-4/mixup", 0, 0.5, variant="short", checkpoint="best on validation, step 4")
    pages = {"bcp": "# bcp\n\nUse of unlabeled scans: crops.\n", "mixup": "# mixup\n"}
    made = """Methods

| method | use of unlabeled scans | tables of the paper | Dice, ACDC-3 | Dice, LA-4 |
| --- | --- | --- | --- | --- |
| [`mixup`](mixup.md) | - | interpolation | 25.00 | - |
| [`bcp`](bcp.md), `bcp-pretrain` | crops | all tables | - | 62.50 ± 17.68 |
"""
    old = "Methods\n\n| method | use of unlabeled scans |\n|---|---|\n| old |"
    for end in ("", "\nMore text.\n| a table |\n"):
        assert script.listed(f"{old}\n{end}", pages, tmp_path) == made + end
    assert script.listed("| method | speed |\n|---|---|\n| walking | low |\n", pages, tmp_path).startswith(
        "| method | s"
    )
