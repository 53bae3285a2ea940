"""The demo on a few tiny phantoms, and the recorded seeds held against the figures they come from."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest
import yaml
from tiny import SIDE, recipe_tree

from graftseg import api
from graftseg.cli import demo
from graftseg.cli.demo import run_demo, run_seeds, seeds_table
from graftseg.core.errors import Code
from graftseg.experiments.records import read_record
from graftseg.recipes.recipe import load_recipe
from user_errors import user_error

ROOT = Path(__file__).parents[2]
SEEDS = ROOT / "results" / "demo-2d-seeds"


@pytest.fixture
def tiny_demo(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use tiny phantoms and recipes: two stages with one and two steps, and one with three."""
    shipped = tmp_path_factory.mktemp("recipes")
    tree = recipe_tree()
    first, second = tree["stages"]
    stages = {
        "bcp": [first | {"steps": 1}, second | {"steps": 2}],
        "supervised": [first | {"method": "supervised", "steps": 3}],
    }
    (shipped / "demo-2d").mkdir()
    for method, parts in stages.items():
        content = tree | {"name": f"demo-2d/{method}", "stages": parts}
        (shipped / "demo-2d" / f"{method}.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setattr("graftseg.recipes.reading.SHIPPED", shipped)
    monkeypatch.setattr(demo, "COUNTS", {"labeled": 2, "unlabeled": 3, "test": 4})
    monkeypatch.setattr(demo, "SHAPES", {2: (SIDE, SIDE)})


def dice_by_class(metrics: Path) -> dict[str, float]:
    """Return the mean Dice in percent by class."""
    values: dict[str, list[float]] = {}
    with metrics.open(newline="") as stream:
        for row in csv.DictReader(stream):
            values.setdefault(row["name"], []).append(100 * float(row["dice"]))
    return {name: fmean(scores) for name, scores in values.items()}


def read_seeds(path: Path) -> list[tuple[int, float, float]]:
    with path.open(newline="") as stream:
        head, *rows = csv.reader(stream)
    assert head == ["seed", "supervised_dice", "bcp_dice"]
    assert all(re.fullmatch(r"\d+\.\d{4}", cell) for row in rows for cell in row[1:])
    return [(int(seed), float(supervised), float(bcp)) for seed, supervised, bcp in rows]


def row_of(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>12}" for cell in cells)


def test_the_demo_prints_the_scores_of_its_files(tiny_demo: None, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    text = run_demo(out, seed=5, device="cpu", overrides=["network.width=3"])
    table, _, words = text.partition("\n\n")
    expected = [row_of(["", "mean", "crescent", "ring", "core"])]
    for method in ("supervised", "bcp"):
        classes = dice_by_class(out / method / "predictions" / "metrics.csv")
        assert list(classes) == ["crescent", "ring", "core"]
        expected.append(row_of([method, *(f"{value:.1f}" for value in (fmean(classes.values()), *classes.values()))]))
        used = load_recipe(out / method / "recipe.yaml")
        assert (used.name, used.seed, used.network.width) == (f"demo-2d/{method}", 5, 3)
    assert table.splitlines() == expected
    used_unlabeled = {method: len(api.info(out / method)["store"]["unlabeled"]) for method in ("supervised", "bcp")}
    assert used_unlabeled == {"supervised": 0, "bcp": 3}
    assert "on 4 test scans, last checkpoint, seed 5, " in words
    assert "train 3 steps on 2 labeled scans, and bcp also on 3 unlabeled scans." in words
    assert words.endswith(f"Report: {out / 'bcp' / 'report.html'}")
    page = (out / "bcp" / "report.html").read_text()
    assert "demo-2d/supervised" in page and "demo-2d/bcp" in page and "4 cases" in page


@pytest.mark.slow
def test_the_table_of_seeds_agrees_with_seeds_csv(tiny_demo: None, tmp_path: Path) -> None:
    out = tmp_path / "seeds"
    table = run_seeds(out, [3, 8], dimensions=2, device="cpu")
    rows = read_seeds(out / "seeds.csv")
    assert [row[0] for row in rows] == [3, 8]
    for seed, *scores in rows:
        for method, score in zip(("supervised", "bcp"), scores, strict=True):
            run = out / f"seed-{seed}" / method
            assert load_recipe(run / "recipe.yaml").seed == seed
            assert score == pytest.approx(
                fmean(dice_by_class(run / "predictions" / "metrics.csv").values()), abs=0.0051
            )
    lines = table.splitlines()
    assert [line.split("|")[1].strip() for line in lines[:5]] == ["seed", "---", "3", "8", "mean"]
    with user_error(Code.TARGET_EXISTS, out):
        run_seeds(out, [3], dimensions=2, device="cpu")


def test_a_used_folder_is_rejected_and_unchanged(tiny_demo: None, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("mine")
    for out in (tmp_path, thesis):
        with user_error(Code.TARGET_EXISTS, out):
            run_demo(out, seed=0, device="cpu")
        with user_error(Code.TARGET_EXISTS, out):
            run_seeds(out, [1], dimensions=2, device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"] and thesis.read_text() == "mine"


def test_the_table_of_seeds_by_hand() -> None:
    assert seeds_table([(1, 50.0, 75.25), (2, 60.5, 60.0), (7, 40.0, 40.0)]) == (
        "| seed | supervised | BCP | difference |\n"
        "|---|---|---|---|\n"
        "| 1 | 50.0 | 75.2 | +25.2 |\n"
        "| 2 | 60.5 | 60.0 | -0.5 |\n"
        "| 7 | 40.0 | 40.0 | +0.0 |\n"
        "| mean | 50.2 | 58.4 | +8.2 |\n"
        "\n"
        "BCP wins 1 of 3."
    )


def recorded(seed: int, method: str) -> float:
    summary = read_record(SEEDS / f"seed-{seed}" / method).evaluation.summary()
    assert [one.name for one in summary.classes] == ["crescent", "ring", "core"]
    return 100 * summary.overall["dice"]


def test_recorded_seeds_agree_with_their_scores() -> None:
    differing = [
        (seed, method)
        for seed, *scores in read_seeds(SEEDS / "seeds.csv")
        for method, score in zip(("supervised", "bcp"), scores, strict=True)
        if f"{recorded(seed, method):.2f}" != f"{score:.2f}"
    ]
    assert not differing


def test_the_documented_seeds_are_the_recorded_ones() -> None:
    table = seeds_table(read_seeds(SEEDS / "seeds.csv"))
    assert f"\n\n{table}\n\n" in (ROOT / "docs" / "explanation" / "demo.md").read_text()


def test_every_recorded_run_is_in_the_table() -> None:
    folders = {path.name for path in SEEDS.iterdir() if path.is_dir()}
    assert folders == {f"seed-{row[0]}" for row in read_seeds(SEEDS / "seeds.csv")}


@pytest.mark.parametrize("method", ["supervised", "bcp"])
def test_the_recorded_demo_is_the_shipped_recipe(method: str) -> None:
    recorded_recipe = load_recipe(ROOT / "results" / "demo-2d" / method / "recipe.yaml")
    assert recorded_recipe == load_recipe(f"demo-2d/{method}", ["seed=0"])
