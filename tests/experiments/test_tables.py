"""Tables: recorded and published figures in the paper's order."""

import math
from pathlib import Path

import pytest
import tiny
from command_line import CommandLine, contents

import graftseg.recipes.recipe
from graftseg import api
from graftseg.core.errors import Code
from graftseg.experiments.paper import TABLES, benchmark_of
from graftseg.experiments.tables import (
    BASELINE_TITLE,
    DIFFERENT_FACTORS,
    GAINS_HEAD,
    HEAD,
    markdown,
    rows_of,
    table,
    tables_page,
)
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import load_recipe
from record_fakes import PUBLISHED, record, rewrite, row, ship
from user_errors import user_error

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
    assert benchmark_of(TABLES["pancreas"].rows[0].recipe) == "pancreas"
    for one in TABLES.values():
        assert len({row.recipe for row in one.rows}) == len(one.rows)


def test_recipes_outside_the_paper_follow(shipped: Path) -> None:
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


def test_the_oracle_is_shown_only_if_every_seed_has_one(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-4/bcp", 0, 0.5, best=0.7)
    record(tmp_path, "la-4/bcp", 1, 0.5)
    (line,) = [line for line in rows(table("la", tmp_path)) if line[1:2] == ["la-4/bcp"]]
    assert line[-1] == "-"


def test_the_best_checkpoint_on_validation_has_a_second_line(shipped: Path, tmp_path: Path) -> None:
    on_validation = "best on validation, step 600"
    for seed, best in ((0, 0.7), (1, 0.9)):
        record(tmp_path, "acdc-3/bcp", seed, 0.5, best=best, best_checkpoint=on_validation)
    record(tmp_path, "acdc-3/bcp", 0, 0.4, variant="fast", best=0.6, best_checkpoint=on_validation)
    record(tmp_path, "acdc-3/bcp", 1, 0.4, variant="fast")
    selected = "best on validation, step 600 (protocol paper)"
    record(tmp_path, "acdc-3/bcp", 0, 0.8, variant="fast-paper", checkpoint=selected)
    found = [line[2:6] + line[-1:] for line in rows(table("acdc", tmp_path)) if line[1:2] == ["acdc-3/bcp"]]
    assert found == [
        ["-", "0, 1", "last", "50.00 ± 0.00", "-"],
        ["-", "0, 1", "best on validation", "80.00 ± 14.14", "-"],
        ["fast", "0, 1", "last", "40.00 ± 0.00", "-"],
        ["fast-paper", "0", "best on validation (protocol paper)", "80.00", "-"],
    ]


def test_a_shorter_training_is_a_variant_compared_with_its_baseline(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-8/supervised", 0, 0.5, variant="short", steps=10)
    record(tmp_path, "la-8/supervised", 1, 0.6, variant="short", steps=10)
    record(tmp_path, "la-8/supervised", 0, 0.8)
    record(tmp_path, "la-8/bcp", 0, 0.7, variant="short", steps=12)
    record(tmp_path, "la-8/bcp", 1, 0.9, variant="short", steps=12)
    record(tmp_path, "la-8/bcp", 2, 0.1, variant="short", steps=12)
    record(tmp_path, "la-8/dtc", 0, 0.4, variant="short", steps=10, protocol="paper")
    text = table("la", tmp_path)
    first, _, second = text.partition(f"\n{BASELINE_TITLE}\n\n")
    variants = [line[2:4] for line in rows(first) if line[1] == "la-8/supervised"]
    assert variants == [["-", "0"], ["short", "0, 1"]]
    head, _, *lines = rows(second)
    assert head == list(GAINS_HEAD)
    assert lines == [["la-8/bcp", "short", "0, 1", "12", "10", "55.00", "80.00", "+25.00", "-"]]
    assert BASELINE_TITLE not in table("masks", tmp_path)


@pytest.mark.parametrize(
    ("steps", "of_baseline", "expected"),
    [
        (17, 15, ["17", "15", "50.00", "70.00", "+20.00", "-"]),
        (17, 3, ["17", "3", "50.00", "70.00", "-", DIFFERENT_FACTORS]),
        (3400, 15000, ["3400", "15000", "50.00", "70.00", "-", DIFFERENT_FACTORS]),
    ],
)
def test_differently_shortened_trainings_have_no_difference(
    tmp_path: Path, steps: int, of_baseline: int, expected: list[str]
) -> None:
    record(tmp_path, "la-4/supervised", 0, 0.5, variant="mini", steps=of_baseline)
    record(tmp_path, "la-4/bcp", 0, 0.7, variant="mini", steps=steps)
    whole = [sum(stage.steps for stage in load_recipe(f"la-4/{one}").stages) for one in ("bcp", "supervised")]
    assert whole == [17000, 15000]
    assert rows(table("la", tmp_path))[-1] == ["la-4/bcp", "mini", "0", *expected]


def test_intervals_of_the_comparison_are_over_cases(shipped: Path, tmp_path: Path) -> None:
    for name, values in (("la-8/supervised", (0.5, 0.6)), ("la-8/bcp", (0.5, 0.8))):
        folder = record(tmp_path, name, 0, 0.5)
        rewrite(folder, [row(value, case) for case, value in zip("ab", values, strict=True)])
    line = rows(table("la", tmp_path))[-1]
    assert line == ["la-8/bcp", "-", "0", "100", "100", "55.00", "65.00", "+10.00", "+0.00 to +20.00"]


def test_seeds_scored_on_other_data_share_no_line(shipped: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        folder = record(tmp_path, "la-4/bcp", seed, 0.5)
    for other, keyword in (
        ([row(0.5, volume=2.0)], "2 ml"),
        ([row(0.5, case="b")], "references"),
        ([row(0.5), row(0.5, case="b")], "b"),
        ([row(0.5, name="ventricle")], "ventricle"),
    ):
        rewrite(folder, other)
        with user_error(Code.NOT_COMPARABLE, "seed-1", keyword):
            table("la", tmp_path)
    rewrite(folder, [row(0.5)], about={"tested_on": "f01"})
    assert "| la-4/bcp | - | 0, 1 |" in table("la", tmp_path)
    rewrite(tmp_path / "la-4/bcp/seed-0", about={"tested_on": "f00"})
    with user_error(Code.NOT_COMPARABLE, "seed-1", "seed-0"):
        table("la", tmp_path)


def test_seeds_with_other_settings_share_no_line(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-4/bcp", 0, 0.5)
    record(tmp_path, "la-4/bcp", 1, 0.6, settings={"network": {"name": "unet-2d", "width": 4, "levels": 3}})
    with user_error(Code.VARIANT_NEEDED, "seed-1", "network.width"):
        table("la", tmp_path)


def test_images_without_volumes_are_matched_by_their_store(shipped: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        folder = record(tmp_path, "la-4/bcp", seed, 0.5)
        rewrite(folder, [row(0.5, volume=math.nan)], facts={"store": {"identity": "f00"}})
    assert "| la-4/bcp | - | 0, 1 |" in table("la", tmp_path)
    rewrite(folder, facts={"store": {"identity": "f01"}})
    with user_error(Code.NOT_COMPARABLE, "seed-1", "references"):
        table("la", tmp_path)


def test_a_table_warns_of_seeds_trained_on_different_stores(shipped: Path, tmp_path: Path) -> None:
    for seed, identity in ((0, "f00"), (1, "f00"), (2, "f00")):
        rewrite(record(tmp_path, "la-4/bcp", seed, 0.5), facts={"store": {"identity": identity}})
    warning = "Seeds 0, 1 and 2 of la-4/bcp were trained on stores that differ.\n"
    assert warning not in table("la", tmp_path)
    rewrite(tmp_path / "la-4/bcp/seed-2", facts={"store": {"identity": "f01"}})
    assert f"\n\n{warning}" in table("la", tmp_path) and warning in api.table("all", tmp_path)


def test_a_baseline_on_other_references_is_rejected(shipped: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-8/supervised", 0, 0.5)
    record(tmp_path, "la-8/bcp", 0, 0.7)
    rewrite(tmp_path / "la-8/bcp/seed-0", [row(0.7, volume=2.0)])
    with user_error(Code.NOT_COMPARABLE, "la-8/bcp/seed-0", "la-8/supervised/seed-0"):
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
    assert all(word in legend for word in ("±", "variant", "oracle", "A dash", "95 % interval"))
    masks = api.table("masks", tmp_path)
    assert masks.startswith("## Masks\n\n| row | recipe |") and "A dash means" in masks
    assert "second table" not in masks


def test_without_records_a_table_has_published_figures(
    shipped: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, error = cli("table", "la")
    assert code == 0 and "| BCP | la-8/bcp | - |" in out and "| 89.62 / 81.31 / 6.81 / 1.76 |" in out
    assert error.startswith("graftseg: ") and "published scores only" in error
    for words in (("--results", "results"), ("--markdown", tmp_path / "la.md")):
        assert cli.fails("table", "la", *words, code=Code.NOT_A_FOLDER).startswith("graftseg: results: ")
    assert not (tmp_path / "la.md").exists()
    (tmp_path / "results").write_text("")
    assert cli.fails("table", "la", code=Code.NOT_A_FOLDER).startswith("graftseg: results: ")


def test_a_table_is_not_written_among_the_records(
    shipped: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "results", "la-8/bcp", 0, 0.5)
    (tmp_path / "link").symlink_to(tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    before = contents(tmp_path / "results")
    for file in ("results/la-8/bcp/seed-0/record.json", "link/la.md", "results/new/la.md"):
        cli.fails("table", "la", "--markdown", file, code=Code.UNSAFE_TARGET)
    assert contents(tmp_path / "results") == before
    cli.works("table", "la", "--markdown", "results.md")


def test_unknown_tables_and_folders(tmp_path: Path) -> None:
    with user_error(Code.UNKNOWN_NAME, "table liver", "la, acdc, pancreas"):
        api.table("liver", tmp_path)
    with user_error(Code.NOT_A_FOLDER, tmp_path / "absent", "--results"):
        api.table("la", tmp_path / "absent")


def test_a_bar_in_a_cell_is_escaped() -> None:
    assert markdown([["a"], ["b|c"]]) == "| a |\n| --- |\n| b\\|c |\n"


def test_the_page_in_the_docs_is_the_one_that_is_made() -> None:
    page = ROOT / "docs" / "reference" / "tables.md"
    assert page.read_text() == tables_page(ROOT / "results"), "run make docs"


def test_published_figures_are_no_difference() -> None:
    one, two = tiny.tiny_recipe(), tiny.tiny_recipe(published=PUBLISHED)
    assert graftseg.recipes.recipe.training_differences(one, two) == []
    assert two.published is not None and two.published.row == "BCP, 8 labels"
    with user_error(Code.RECIPE_INVALID, "", "published.selection"):
        tiny.tiny_recipe(published=PUBLISHED | {"selection": "by eye"})
