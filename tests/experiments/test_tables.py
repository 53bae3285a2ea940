"""Tables: what was recorded beside what was published, in the paper's order."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from command_line import CommandLine

import graftseg.recipes.recipe
from graftseg import api
from graftseg.core.errors import UserError
from graftseg.core.files import write_json
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.experiments.paper import TABLES
from graftseg.experiments.tables import GAINS_HEAD as BESIDE
from graftseg.experiments.tables import HEAD, rows_of, table, tables_page
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import load_recipe
from record_fakes import PUBLISHED, record, ship, write_scores

ROOT = Path(__file__).parents[2]


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


def test_every_row_of_every_table_has_its_recipe() -> None:
    named = {row.recipe for one in TABLES.values() for row in one.rows}
    assert sorted(named - set(shipped_recipes())) == []


def test_rows_come_in_the_order_of_the_paper() -> None:
    recipes = [row.recipe for row in TABLES["la"].rows]
    assert recipes[:5] == ["la-4/supervised", "la-8/supervised", "la-80/supervised", "la-4/ua-mt", "la-4/sassnet"]
    assert (recipes[9], recipes[-1], len(recipes)) == ("la-4/bcp", "la-8/bcp", 17)
    assert [row.recipe for row in TABLES["acdc"].rows] == [
        name.replace("la-80", "acdc-70").replace("la-4", "acdc-3").replace("la-8", "acdc-7") for name in recipes
    ]
    counts = {name: len(one.rows) for name, one in TABLES.items()}
    assert counts == {
        "la": 17,
        "acdc": 17,
        "pancreas": 8,
        "directions": 16,
        "interpolation": 6,
        "masks": 6,
        "beta": 8,
        "alpha": 12,
        "init": 6,
        "components": 4,
    }
    assert [row.name for row in TABLES["components"].rows] == ["none", "BCP", "BCP, nms", "BCP, nms, Pre-Train"]
    assert [(row.setting, row.benchmark) for row in TABLES["pancreas"].rows[:1]] == [("pancreas-12", "pancreas")]
    for one in TABLES.values():
        assert len({row.recipe for row in one.rows}) == len(one.rows)


def test_recipes_that_no_table_names_follow(shipped: Path) -> None:
    for name in ("la-8/zeal", "la-4/mean-teacher", "la-80/dan", "la-4/bcp-in"):
        ship(shipped, name, None)
    extra = rows_of("la")[len(TABLES["la"].rows) :]
    assert [(row.name, row.recipe) for row in extra] == [
        ("mean-teacher", "la-4/mean-teacher"),
        ("zeal", "la-8/zeal"),
        ("dan", "la-80/dan"),
    ]
    assert rows_of("masks") == list(TABLES["masks"].rows)


def test_without_records_or_recipes_there_are_dashes(shipped: Path, tmp_path: Path) -> None:
    head, line, *lines = rows(table("la", tmp_path / "results"))
    assert head == list(HEAD) and set(line) == {"---"}
    assert [line[1] for line in lines] == [row.recipe for row in TABLES["la"].rows]
    assert lines[4] == ["SASSNet", "la-4/sassnet", *["-"] * 10]
    assert lines[-1] == ["BCP", "la-8/bcp", *["-"] * 7, "89.62 / 81.31 / 6.81 / 1.76", "test list", "-"]
    assert rows(table("beta", tmp_path / "results"))[4][:2] == ["β = 2/3", "la-4/bcp"]


def test_seeds_of_one_kind_share_a_line(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-8/bcp", 0, 0.5, best=0.7)
    record(tmp_path, "la-8/bcp", 10, 0.8, best=0.9)
    record(tmp_path, "la-8/bcp", 2, 0.2, best=0.8)
    record(tmp_path, "la-8/bcp", 0, 0.6, variant="exact", checkpoint="best on test, step 400 (protocol paper)")
    record(tmp_path, "la-8/bcp", 1, 0.6, variant="exact", checkpoint="best on test, step 600 (protocol paper)")
    record(tmp_path, "la-8/bcp", 2, 0.6, variant="exact", protocol="paper")
    found = [line[2:9] + line[-1:] for line in rows(table("la", tmp_path)) if line[1:2] == ["la-8/bcp"]]
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
    (line,) = [line for line in rows(table("la", tmp_path)) if line[1:2] == ["la-4/bcp"]]
    assert line[-1] == "-"


def test_a_shorter_training_is_a_variant_and_stands_beside_its_baseline(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-8/supervised", 0, 0.5, variant="short", steps=10)
    record(tmp_path, "la-8/supervised", 1, 0.6, variant="short", steps=10)
    record(tmp_path, "la-8/supervised", 0, 0.8)
    record(tmp_path, "la-8/bcp", 0, 0.7, variant="short", steps=12)
    record(tmp_path, "la-8/bcp", 1, 0.9, variant="short", steps=12)
    record(tmp_path, "la-8/bcp", 2, 0.1, variant="short", steps=12)
    record(tmp_path, "la-8/dtc", 0, 0.4, variant="short", steps=10, protocol="paper")
    text = table("la", tmp_path)
    first, _, second = text.partition("\nBeside the supervised baseline of the same setting and variant:\n\n")
    variants = [line[2:4] for line in rows(first) if line[1] == "la-8/supervised"]
    assert variants == [["-", "0"], ["short", "0, 1"]]
    head, _, *lines = rows(second)
    assert head == list(BESIDE)
    assert lines == [["la-8/bcp", "short", "0, 1", "12", "10", "55.00", "80.00", "+25.00", "-"]]
    assert "Beside" not in table("masks", tmp_path)


@pytest.mark.parametrize(
    ("steps", "of_baseline", "expected"),
    [
        (17, 15, ["17", "15", "50.00", "70.00", "+20.00", "-"]),
        (17, 3, ["17", "3", "50.00", "70.00", "-", "shortened otherwise"]),
        (3400, 15000, ["3400", "15000", "50.00", "70.00", "-", "shortened otherwise"]),
    ],
)
def test_no_difference_is_told_of_trainings_that_were_shortened_otherwise(
    tmp_path: Path, steps: int, of_baseline: int, expected: list[str]
) -> None:
    record(tmp_path, "la-4/supervised", 0, 0.5, variant="mini", steps=of_baseline)
    record(tmp_path, "la-4/bcp", 0, 0.7, variant="mini", steps=steps)
    whole = [sum(stage.steps for stage in load_recipe(f"la-4/{one}").stages) for one in ("bcp", "supervised")]
    assert whole == [17000, 15000]
    assert rows(table("la", tmp_path))[-1] == ["la-4/bcp", "mini", "0", *expected]


def test_intervals_beside_the_baseline_are_over_cases(shipped: Path, tmp_path: Path) -> None:
    for name, values in (("la-8/supervised", (0.5, 0.6)), ("la-8/bcp", (0.5, 0.8))):
        record(tmp_path, name, 0, 0.5)
        cases = tuple(
            Row(case, 1, "atrium", *[*[value] * 10, 1.0, 1.0]) for case, value in zip("ab", values, strict=True)
        )
        Evaluation(cases, "standard").write_csv(tmp_path / name / "seed-0" / "metrics.csv")
    line = rows(table("la", tmp_path))[-1]
    assert line == ["la-8/bcp", "-", "0", "100", "100", "55.00", "65.00", "+10.00", "+0.00 to +20.00"]


OTHERS: dict[str, dict[str, Any]] = {
    r"seed-1: the reference of a is of 2 ml, and of 1 ml for .*seed-0; move one of the two": {"volume": 2.0},
    r"seed-1: nothing tells that it was scored against the same references as .*seed-0; move": {"case": "b"},
}


@pytest.mark.parametrize("sentence", OTHERS)
def test_seeds_of_other_data_share_no_line(shipped: Path, tmp_path: Path, sentence: str) -> None:
    for seed in (0, 1):
        record(tmp_path, "la-4/bcp", seed, 0.5)
    write_scores(tmp_path / "la-4/bcp/seed-1", "metrics", 0.5, **OTHERS[sentence])
    with pytest.raises(UserError, match=sentence):
        table("la", tmp_path)
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "bcp.md").write_text("## Our number\n\n## Known differences\n")
    with pytest.raises(UserError, match=sentence):
        api.fill_pages(pages, tmp_path)


def test_seeds_of_other_cases_or_classes_share_no_line(shipped: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        record(tmp_path, "la-4/bcp", seed, 0.5)
    one, two = (Row(case, 1, "atrium", *[*[0.5] * 10, 1.0, 1.0]) for case in "ab")
    scores = tmp_path / "la-4/bcp/seed-1/metrics.csv"
    Evaluation((one, two), "standard").write_csv(scores)
    with pytest.raises(
        UserError, match=r"seed-1: not scored on the same cases as .*seed-0 \(1 in one .* only: b\); move"
    ):
        table("la", tmp_path)
    Evaluation((replace(one, name="ventricle"),), "standard").write_csv(scores)
    with pytest.raises(
        UserError, match=r"seed-1: its classes are ventricle, and not atrium as those of .*seed-0; move"
    ):
        table("la", tmp_path)


def test_images_without_volumes_are_told_apart_by_their_store(shipped: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        record(tmp_path, "la-4/bcp", seed, 0.5)
        write_scores(tmp_path / f"la-4/bcp/seed-{seed}", "metrics", 0.5, volume=math.nan)
        write_json(tmp_path / f"la-4/bcp/seed-{seed}/run.json", {"store": {"identity": "f00"}})
    assert "| la-4/bcp | - | 0, 1 |" in table("la", tmp_path)
    write_json(tmp_path / "la-4/bcp/seed-1/run.json", {"store": {"identity": "f01"}})
    with pytest.raises(UserError, match="seed-1: nothing tells that it was scored against the same references"):
        table("la", tmp_path)


def test_stores_of_another_identity_with_the_same_references_share_a_line(shipped: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        record(tmp_path, "la-4/bcp", seed, 0.5)
        write_json(tmp_path / f"la-4/bcp/seed-{seed}/run.json", {"store": {"identity": str(seed)}})
    assert "| la-4/bcp | - | 0, 1 |" in table("la", tmp_path)


def test_a_baseline_on_other_references_is_no_baseline(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-8/supervised", 0, 0.5)
    record(tmp_path, "la-8/bcp", 0, 0.7)
    write_scores(tmp_path / "la-8/bcp/seed-0", "metrics", 0.7, volume=2.0)
    with pytest.raises(
        UserError, match=r"la-8/bcp/seed-0: the reference of a is .* for .*la-8/supervised/seed-0; move"
    ):
        table("la", tmp_path)


def test_the_page_has_all_tables(shipped: Path, tmp_path: Path) -> None:
    page = tables_page(tmp_path)
    assert page.startswith("# Tables\n")
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == [one.title for one in TABLES.values()]
    assert api.table("all", tmp_path) == page


def test_a_table_has_its_title_and_a_legend(shipped: Path, tmp_path: Path) -> None:
    for name in ("la-8/supervised", "la-8/bcp"):
        record(tmp_path, name, 0, 0.5)
    page = api.table("la", tmp_path)
    title, body, legend = page.partition(table("la", tmp_path))
    assert title == "## Left atrium (LA)\n\n" and body
    assert all(word in legend for word in ("±", "variant", "oracle", "A dash", "95 % interval over the test"))
    masks = api.table("masks", tmp_path)
    assert masks.startswith("## Masks\n\n| row | recipe |") and "A dash: not recorded" in masks
    assert "side by side" not in masks


def test_without_a_folder_of_results_the_published_figures_are_told(
    shipped: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, error = cli("table", "la")
    assert code == 0 and "| BCP | la-8/bcp | - |" in out and "| 89.62 / 81.31 / 6.81 / 1.76 |" in out
    assert error == "graftseg: there is no folder results here, so only published figures are told\n"
    for words in (("--results", "results"), ("--pages", tmp_path), ("--markdown", tmp_path / "la.md")):
        assert "graftseg: results: not a folder; name the folder" in cli.fails("table", "la", *words)
    assert not (tmp_path / "la.md").exists()
    (tmp_path / "results").write_text("")
    assert "graftseg: results: not a folder" in cli.fails("table", "la")


def test_unknown_tables_and_folders(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"table liver: unknown; choose one of la, acdc, pancreas, directions, .*, components, all"
    ):
        api.table("liver", tmp_path)
    with pytest.raises(UserError, match="not a folder; name the folder of the records as --results"):
        api.table("la", tmp_path / "absent")


def test_a_record_that_is_damaged_is_named(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-4/bcp", 0, 0.5)
    (tmp_path / "la-4/bcp/seed-0/metrics.json").write_text("{}")
    with pytest.raises(UserError, match=r"metrics\.json: .*; record the run again"):
        table("la", tmp_path)


@pytest.mark.parametrize("best", [None, 0.7])
def test_facts_that_are_damaged_are_named(shipped: Path, tmp_path: Path, best: float | None) -> None:
    record(tmp_path, "la-4/bcp", 0, 0.5, best=best)
    for content, finding in (("{", "not valid JSON"), ("[]", "not a JSON object")):
        (tmp_path / "la-4/bcp/seed-0/run.json").write_text(content)
        with pytest.raises(UserError, match=rf"run\.json: {finding}"):
            table("la", tmp_path)


@pytest.mark.parametrize("left", ["metrics.csv", "metrics.json", "recipe.yaml", "log.jsonl"])
def test_a_record_that_lost_its_facts_is_named(shipped: Path, tmp_path: Path, left: str) -> None:
    record(tmp_path, "la-4/bcp", 0, 0.5)
    folder = tmp_path / "la-4/bcp/seed-0"
    for path in folder.iterdir():
        if path.name != left:
            path.unlink()
    with pytest.raises(UserError) as caught:
        table("la", tmp_path)
    remedy = "record the run again, or move the folder elsewhere"
    assert str(caught.value) == f"{folder / 'run.json'}: missing from the record; {remedy}."


def test_a_score_that_is_gone_is_named(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-4/bcp", 0, 0.5)
    scores = tmp_path / "la-4/bcp/seed-0/metrics.csv"
    scores.write_text(scores.read_text().replace("0.5", "", 1))
    with pytest.raises(UserError) as caught:
        table("la", tmp_path)
    assert str(caught.value) == f"{scores}: dice of class 1 of a is empty; record the run again."


def test_scores_that_were_cut_are_named(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-4/bcp", 0, 0.5)
    described = tmp_path / "la-4/bcp/seed-0/metrics.json"
    write_json(described, {"checkpoint": "last", "protocol": "standard", "rows": 2})
    with pytest.raises(UserError, match=r"metrics\.csv: 1 rows where 2 were written; record the run again"):
        table("la", tmp_path)


def test_the_page_in_the_docs_is_the_one_that_is_made() -> None:
    page = ROOT / "docs" / "reference" / "tables.md"
    assert page.read_text() == tables_page(ROOT / "results"), "make it anew with graftseg table all --markdown"


def test_published_figures_are_no_difference() -> None:
    one, two = tiny.tiny_recipe(), tiny.tiny_recipe(published=PUBLISHED)
    assert graftseg.recipes.recipe.differences(one, two) == []
    assert two.published is not None and two.published.row == "BCP, 8 labels"
    with pytest.raises(UserError, match=r"published\.selection"):
        tiny.tiny_recipe(published=PUBLISHED | {"selection": "by eye"})
