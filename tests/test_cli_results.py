"""The command line from a store to a line of a table."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
import yaml

from graftseg import api
from graftseg.data.store import Store
from test_cli import Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(capsys, monkeypatch)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    tree = tiny.recipe_tree() | {"name": "tiny/supervised", "stages": [{"method": "supervised", "steps": 2}]}
    path.write_text(yaml.safe_dump(tree))
    return path


def test_from_seeds_to_records(cli: Cli, store: Store, recipe: Path, tmp_path: Path) -> None:
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
    assert code == 0 and ("la-8/bcp" in out or "No recipe" in out)
    page = tmp_path / "tables.md"
    assert cli("table", "all", "--results", results, "--markdown", page)[1] == f"{page}\n"
    assert page.read_text().startswith("# Tables")


def test_a_store_is_predicted_and_is_the_reference(cli: Cli, store: Store, recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cli("train", recipe, "--data", store.path, "--out", run, "--device", "cpu")
    code, out, _ = cli("predict", run, store.path, "--device", "cpu")
    assert (code, out.split(":")[0]) == (0, str(run / "predictions"))
    code, out, _ = cli("evaluate", run / "predictions", "--reference", store.path)
    assert code == 0 and "crescent" in out
    assert json.loads((run / "predictions" / "manifest.json").read_text())["checkpoint"] == "last"
    assert "the run kept no best checkpoint" in cli.fails("predict", run, store.path, "--checkpoint", "best")
    error = cli.fails("predict", run, store.path, "--checkpoint", "first")
    assert error == "graftseg: --checkpoint first: unknown; choose one of shipped, best.\n"
    assert "not the place of this run" in cli.fails("record", run, "--out", tmp_path / "elsewhere")
    assert "choose one of la, acdc, pancreas, all" in cli.fails("table", "liver", "--results", tmp_path)


def test_paths_that_are_not_utf8(scans: Path, recipe: Path, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/scans\xff"))
    data, run = Path(shutil.copytree(scans, folder / "data")), folder / "run"
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
    assert rb"scans\udcff" in api.report(run).read_bytes()


def test_an_empty_protocol_is_refused(cli: Cli, store: Store, recipe: Path, tmp_path: Path) -> None:
    error = cli.fails("train", recipe, "--data", store.path, "--out", tmp_path / "run", "--protocol", "")
    assert "--protocol : unknown; choose one of last, val and paper" in error
