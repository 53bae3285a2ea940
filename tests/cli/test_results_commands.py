"""The command line from a store to a line of a table."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
import yaml
from command_line import CommandLine

import graftseg.experiments.sweep
import graftseg.recipes.reading
from graftseg import api
from graftseg.core.errors import Code
from graftseg.data.store import Store
from graftseg.evaluation.scores import Evaluation, Row, read_csv
from graftseg.evaluation.table_metrics import mean_metrics, scores_table


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    tree = tiny.recipe_tree() | {"name": "tiny/supervised", "stages": [{"method": "supervised", "steps": 2}]}
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.mark.slow
def test_from_seeds_to_records(cli: CommandLine, store: Store, recipe: Path, tmp_path: Path) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    arguments = ("train", recipe, "--data", store.path, "--out", runs, "--seeds", 2, "--device", "cpu")
    code, out, _ = cli(*arguments, "--set", "seed=4")
    head, first, second, mean = (line.split("\t") for line in out.splitlines())
    assert code == 0 and head == ["", "Dice", "Jaccard", "95HD", "ASD", "checkpoint"]
    assert [first[0], second[0], mean[0]] == ["seed 4", "seed 5", "mean"] and " ± " in mean[1]
    assert cli(*arguments, "--set", "seed=4")[1] == out
    for seed in (4, 5):
        code, out, _ = cli("record", runs / f"seed-{seed}", "--results", results)
        assert (code, out) == (0, f"{results}/tiny/supervised/seed-{seed}\n")
    code, out, _ = cli("table", "la", "--results", results)
    assert code == 0 and "| BCP | la-8/bcp |" in out
    page = tmp_path / "tables.md"
    assert cli("table", "all", "--results", results, "--markdown", page)[1] == f"{page}\n"
    assert page.read_text().startswith("# Tables")


def test_a_store_is_predicted_and_is_the_reference(
    cli: CommandLine, store: Store, recipe: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    cli("train", recipe, "--data", store.path, "--out", run, "--device", "cpu")
    code, out, _ = cli("predict", run, store.path, "--device", "cpu")
    assert (code, out.split(":")[0]) == (0, str(run / "predictions"))
    code, out, _ = cli("evaluate", run / "predictions", "--reference", store.path)
    lines = [line.split("\t") for line in out.splitlines()]
    assert code == 0 and lines[0] == [
        "class",
        "Dice %",
        "Jaccard %",
        "95HD voxel",
        "ASD voxel",
        "95HD mm",
        "ASD mm",
        "surface Dice %",
    ]
    figures = mean_metrics(read_csv(run / "predictions" / "metrics.csv"))
    assert lines[4][:5] == ["mean", *(f"{figures[name]:.2f}" for name in ("dice", "jaccard", "hd95", "asd"))]
    assert json.loads((run / "predictions" / "manifest.json").read_text())["checkpoint"] == "last"
    cli.fails("predict", run, store.path, "--checkpoint", "best", code=Code.NO_BEST_CHECKPOINT)
    cli.fails("record", run, "--out", tmp_path / "elsewhere", code=Code.OPTION_INVALID)
    assert "la, acdc, pancreas" in cli.fails("table", "liver", "--results", tmp_path)


@pytest.mark.slow
def test_paths_that_are_not_utf8(scans: Path, recipe: Path, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/scans\xff"))
    data, run = Path(shutil.copytree(scans, folder / os.fsdecode(b"data\xff"))), folder / "run"
    program = [sys.executable, "-m", "graftseg"]

    def said(*words: object) -> bytes:
        done = subprocess.run([*program, *map(str, words)], capture_output=True, check=True)
        return done.stdout

    assert said("prepare", data, "--out", folder / "store", "--recipe", recipe).startswith(
        os.fsencode(tmp_path) + rb"/scans\udcff/store: 11 cases"
    )
    api.train(recipe, folder / "store", run, device="cpu")
    assert len(api.predict(run, folder / "store", device="cpu").cases) == 2
    api.evaluate(run / "predictions", folder / "store")
    assert rb"<td>data\udcff</td>" in api.report(run).read_bytes()


def test_an_empty_protocol_is_rejected(cli: CommandLine, store: Store, recipe: Path, tmp_path: Path) -> None:
    words = ("train", recipe, "--data", store.path, "--out", tmp_path / "run", "--protocol", "")
    assert "'last', 'val', 'paper'" in cli.fails(*words, code=Code.OPTION_INVALID)


def test_millimeters_are_printed_if_they_differ_from_voxels() -> None:
    rows = (Row("a", 1, "ring", 0.5, 0.25, 1, 1, 2, 2, 3, 3, 6, 6, 1, 1),)
    head, (ring, mean) = scores_table(Evaluation(rows, "standard"))
    volumes = ("volume error ml", "volume error %")
    assert head == ("class", "Dice %", "Jaccard %", "95HD voxel", "ASD voxel", "95HD mm", "ASD mm", *volumes)
    assert ring == ("ring", "50.00", "25.00", "1.00", "2.00", "3.00", "6.00", "0.00", "0.00")
    assert mean == ("mean", *ring[1:7], "-", "-")
    same = Evaluation((Row("a", 1, "ring", *[0.5, 0.25, *[1, 1, 2, float("nan")] * 2, 1, 1]),), "standard")
    assert scores_table(same) == ((*head[:5], *volumes), [(*ring[:5], "0.00", "0.00"), (*mean[:5], "-", "-")])


def test_files_without_geometry_have_no_millimeters(cli: CommandLine, scans: Path, tmp_path: Path) -> None:
    labels = scans / "labelsTs"
    code, out, _ = cli("evaluate", labels, "--reference", labels, "--out", tmp_path / "metrics.csv")
    assert code == 0 and out.splitlines()[0] == "class\tDice %\tJaccard %\t95HD voxel\tASD voxel\tsurface Dice %"
    assert "distances in millimeters are the same as in voxels" in out


@pytest.fixture
def shipped(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ship one row of each of two data sets."""
    monkeypatch.setattr(graftseg.recipes.reading, "SHIPPED", tmp_path / "recipes")
    for name in ("la-4/bcp", "acdc-3/bcp"):
        path = tmp_path / "recipes" / f"{name}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(yaml.safe_dump(yaml.safe_load(recipe.read_text()) | {"name": name}))


@pytest.mark.usefixtures("shipped")
def test_from_a_sweep_to_a_comparison(
    cli: CommandLine, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graftseg.experiments.sweep, "classes_of", lambda name: store.classes)
    results, runs = tmp_path / "results", tmp_path / "runs"
    words = ("sweep", "alpha", "--out", runs, "--results", results, "--device", "cpu", "--seeds", 2)
    code, out, _ = cli(*words, "--only", "la-4/bcp", "--data", store.path)
    assert code == 0 and out.endswith("0 recorded before, 2 recorded now, 0 to do, 0 failed\n")
    stores = ("--data", f"la={store.path}", "--data", f"acdc={store.path}")
    code, out, _ = cli(*words, *stores, "--only", "la-4/bcp", "--only", "acdc-3/bcp", "--dry-run")
    assert code == 0 and "acdc-3/bcp, seed 1: to be trained\n" in out
    code, out, _ = cli(*words, *stores, "--only", "la-4/*")
    assert code == 1 and "la-4/bcp-alpha-1.5: failed: neither a file nor a shipped recipe" in out
    pair = [results / "la-4" / "bcp" / f"seed-{seed}" for seed in (0, 1)]
    code, out, _ = cli("compare", *pair, "--out", tmp_path / "compared")
    about = "(checkpoint: last, 2 steps)"
    assert code == 0 and out.startswith(f"first: {pair[0]} {about}\nsecond: {pair[1]} {about}\n")
    assert "metric\tclass\tcases\tfirst" in out and "Dice %\tmean\t2\t" in out
    assert (tmp_path / "compared" / "comparison.svg").is_file()
    runs_compared = cli("compare", *(runs / "la-4" / "bcp" / f"seed-{seed}" for seed in (0, 1)))[1]
    assert runs_compared.splitlines()[2:] == out.splitlines()[2:]


def test_stores_of_a_sweep_need_data_sets(cli: CommandLine, tmp_path: Path) -> None:
    for data, keyword in (
        (("stores/a", "stores/b"), "not named"),
        (("la=a", "b"), "not named"),
        (("la=a", "la=b"), "one store for each"),
        (("la=a", "LA=b"), "data set la"),
    ):
        words = [word for one in data for word in ("--data", one)]
        assert keyword in cli.fails("sweep", "la", *words, code=Code.OPTION_INVALID)
    words = ["sweep", "masks", "--only", "la-9/*", "--out", str(tmp_path)]
    assert "la-4/bcp-random" in cli.fails(*words, code=Code.UNKNOWN_NAME)


@pytest.mark.parametrize(
    ("given", "code", "where"),
    [
        ("acdc=", Code.OPTION_INVALID, "--data acdc="),
        ("foo=store", Code.UNKNOWN_NAME, "--data foo=store"),
        ("ACDC=none", Code.STORE_MISSING, "none"),
        ("a=b/none", Code.STORE_MISSING, "a=b/none"),
        ("a/b=none", Code.STORE_MISSING, "a/b=none"),
    ],
)
def test_names_of_stores(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, code: Code, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a=b/none").mkdir(parents=True)
    sentence = cli.fails("sweep", "acdc", "--data", given, "--device", "cpu", code=code)
    assert sentence.startswith(f"graftseg: {where}: ")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "stopped by SIGTERM"),
        (signal.SIGHUP, "stopped by SIGHUP"),
    ],
)
def test_an_interrupted_sweep_says_how_to_continue(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, said: str
) -> None:
    monkeypatch.setattr(api, "sweep", lambda *arguments, **settings: signal.raise_signal(number))
    sentence = f"graftseg: sweep: {said}; run the same command again. [interrupted]\n"
    assert cli("sweep", "la") == (128 + number, "", sentence)
    status, _, error = cli("sweep", "la", "--json")
    assert status == 128 + number and json.loads(error)["code"] == Code.INTERRUPTED


def test_tables_may_be_named_in_capitals(cli: CommandLine, shipped: None, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    words = ("--results", tmp_path / "none")
    assert cli.works("table", "ACDC", *words) == cli.works("table", "acdc", *words)
    assert cli.works("table", "All", *words) == cli.works("table", "all", *words)
    sweep = (*words, "--out", tmp_path / "runs", "--device", "cpu", "--dry-run", "--only", "la-4/bcp")
    assert cli.works("sweep", "Masks", *sweep) == cli.works("sweep", "masks", *sweep)
    assert "table nothing: " in cli.fails("table", "Nothing", *words)


def test_the_help_says_which_recipes_are_timed(cli: CommandLine) -> None:
    assert "must have a bcp stage" in " ".join(cli.works("bench", "--help").split())


def test_the_number_of_seeds_is_limited(cli: CommandLine, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out", "--seeds", 101)
    for words in (("train", "demo-2d/bcp", "--data", tmp_path), ("sweep", "la")):
        assert "100" in cli.fails(*words, *out, code=Code.OPTION_INVALID)
    assert not (tmp_path / "out").exists()
