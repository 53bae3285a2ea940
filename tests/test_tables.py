"""Tables: what was recorded beside what was published, in the paper's order."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml

import graftseg.recipe
from graftseg import api
from graftseg.errors import UserError
from graftseg.evaluation import Evaluation, Row
from graftseg.files import write_json
from graftseg.metrics import Protocol
from graftseg.tables import HEAD, recipes_of, table, tables_page

ROOT = Path(__file__).parents[1]
PUBLISHED = {
    "table": "LA",
    "row": "BCP, 8 labels",
    "dice": 89.62,
    "jaccard": 81.31,
    "hd95": 6.81,
    "asd": 1.76,
    "selection": "test list",
}


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that ships some recipes of a table."""
    folder = tmp_path / "recipes"
    monkeypatch.setattr(graftseg.recipe, "SHIPPED", folder)
    for name in ("la-80/supervised", "la-8/bcp", "la-8/supervised", "la-4/bcp", "la-8/dtc", "acdc-3/bcp"):
        ship(folder, name, PUBLISHED if name == "la-8/bcp" else None)
    return folder


def ship(folder: Path, name: str, published: dict[str, Any] | None) -> None:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tiny.recipe_tree() | {"name": name, "published": published}))


def write_scores(folder: Path, name: str, value: float, checkpoint: str, protocol: Protocol) -> None:
    row = Row("a", 1, "atrium", *[value] * 12)
    Evaluation((row,), protocol).write_csv(folder / f"{name}.csv")
    write_json(folder / f"{name}.json", {"checkpoint": checkpoint, "protocol": protocol})


def record(
    results: Path,
    name: str,
    seed: int,
    value: float,
    *,
    variant: str = "",
    checkpoint: str = "last",
    best: float | None = None,
    protocol: Protocol = "standard",
) -> None:
    folder = results / name / (f"seed-{seed}-{variant}" if variant else f"seed-{seed}")
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"seed": seed}))
    write_scores(folder, "metrics", value, checkpoint, protocol)
    if best is not None:
        write_scores(folder, "metrics-best", best, "best on test, step 4 (oracle)", protocol)


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


def test_recipes_come_in_the_order_of_the_paper(shipped: Path) -> None:
    assert recipes_of("la") == ["la-4/bcp", "la-8/supervised", "la-8/dtc", "la-8/bcp", "la-80/supervised"]
    assert recipes_of("acdc") == ["acdc-3/bcp"]


def test_without_records_there_are_dashes_and_published_figures(shipped: Path, tmp_path: Path) -> None:
    head, line, *lines = rows(table("la", tmp_path / "results"))
    assert head == list(HEAD) and set(line) == {"---"}
    assert lines[0] == ["la-4/bcp", *["-"] * 10]
    assert lines[3] == ["la-8/bcp", *["-"] * 7, "89.62 / 81.31 / 6.81 / 1.76", "test list", "-"]


def test_seeds_of_one_kind_share_a_line(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-8/bcp", 0, 0.5, best=0.7)
    record(tmp_path, "la-8/bcp", 10, 0.8, best=0.9)
    record(tmp_path, "la-8/bcp", 2, 0.2, best=0.8)
    record(tmp_path, "la-8/bcp", 0, 0.6, variant="exact", checkpoint="best on test, step 400 (protocol paper)")
    record(tmp_path, "la-8/bcp", 1, 0.6, variant="exact", checkpoint="best on test, step 600 (protocol paper)")
    record(tmp_path, "la-8/bcp", 2, 0.6, variant="exact", protocol="paper")
    found = [line[1:8] + line[-1:] for line in rows(table("la", tmp_path)) if line[0] == "la-8/bcp"]
    spread = ["50.00 ± 30.00", "50.00 ± 30.00", "0.50 ± 0.30", "0.50 ± 0.30"]
    same = ["60.00 ± 0.00", "60.00 ± 0.00", "0.60 ± 0.00", "0.60 ± 0.00"]
    alone = ["60.00", "60.00", "0.60", "0.60"]
    assert found == [
        ["-", "0, 2, 10", "last", *spread, "80.00 / 80.00 / 0.80 / 0.80"],
        ["exact", "0, 1", "best on test (protocol paper)", *same, "-"],
        ["exact", "2", "last; an empty prediction scores 0", *alone, "-"],
    ]


def test_the_oracle_is_shown_only_where_every_seed_has_one(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-4/bcp", 0, 0.5, best=0.7)
    record(tmp_path, "la-4/bcp", 1, 0.5)
    assert rows(table("la", tmp_path))[2][-1] == "-"


def test_a_table_without_recipes_says_so(shipped: Path, tmp_path: Path) -> None:
    assert table("pancreas", tmp_path) == "No recipe of this table is shipped.\n"
    page = tables_page(tmp_path)
    assert page.startswith("# Tables\n") and page.count("\n## ") == 3
    assert api.table("all", tmp_path) == page


def test_unknown_tables_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="table liver: unknown; choose one of la, acdc, pancreas, all"):
        api.table("liver", tmp_path)
    with pytest.raises(UserError, match="not a folder; name the folder of the records as --results"):
        api.table("la", tmp_path / "absent")


def test_a_record_that_is_damaged_is_named(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-4/bcp", 0, 0.5)
    (tmp_path / "la-4/bcp/seed-0/metrics.json").write_text("{}")
    with pytest.raises(UserError, match=r"metrics\.json: .*; record the run again"):
        table("la", tmp_path)


def test_the_page_in_the_docs_is_the_one_that_is_made() -> None:
    page = ROOT / "docs" / "reference" / "tables.md"
    assert page.read_text() == tables_page(ROOT / "results"), "make it anew with graftseg table all --markdown"


def test_published_figures_are_no_difference() -> None:
    one, two = tiny.tiny_recipe(), tiny.tiny_recipe(published=PUBLISHED)
    assert graftseg.recipe.differences(one, two) == []
    assert two.published is not None and two.published.row == "BCP, 8 labels"
    with pytest.raises(UserError, match=r"published\.selection"):
        tiny.tiny_recipe(published=PUBLISHED | {"selection": "by eye"})
