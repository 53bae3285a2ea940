"""Plans of scans on disk, from the command line to a trained network."""

import shlex
from pathlib import Path

import numpy as np
import pytest
import tiny
from typer.testing import CliRunner

from graftseg import api
from graftseg.cli.app import app
from graftseg.core.errors import UserError
from graftseg.data.layouts import read_layout
from graftseg.data.scans import read_label
from graftseg.planning.plans import make_plan
from graftseg.recipes.recipe import changed, load_recipe

ONE_STEP = ["network.width=2", "loop.tensorboard=false", "baseline=false", "folds=null"]


@pytest.mark.parametrize(
    ("dimensions", "labeled", "unlabeled", "device"),
    [(2, 3, 4, "cpu"), (3, 2, 2, "cuda"), (2, 1, 0, "cpu"), (3, 1, 1, "cpu")],
)
def test_a_plan_trains_and_predicts(tmp_path: Path, dimensions: int, labeled: int, unlabeled: int, device: str) -> None:
    scans = tiny.write_scans(tmp_path / "scans", dimensions, labeled=labeled, unlabeled=unlabeled, test=1)
    recipe = make_plan(read_layout(scans), device=device, timed=False).recipe
    steps = [f"stages.{number}.steps=1" for number in range(len(recipe.stages))]
    unchecked = ["stages.1.check_teacher=false"] * (len(recipe.stages) - 1)  # a network of one step predicts nothing
    outcome = api.train(changed(recipe, [*ONE_STEP, *steps, *unchecked]), scans, tmp_path / "run", device="cpu")
    assert outcome.steps == len(recipe.stages) == (2 if unlabeled > 1 else 1)
    (case,) = api.predict(tmp_path / "run", scans / "imagesTs", tmp_path / "out", device="cpu").cases
    assert read_label(tmp_path / "out" / case.output).array.shape == (tiny.SIDE,) * dimensions


def test_the_command(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans", 2)
    out = tmp_path / "plan.yaml"
    words = ["plan", str(scans), "--out", str(out), "--device", "cuda", "--minutes", "30"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "A plan by graftseg" in result.output and "dimensions" not in result.output
    recipe = load_recipe(out)
    assert recipe.data.dimensions == 2 and recipe.baseline
    output = " ".join(result.output.replace("#", " ").split())
    assert "a typical GPU (none in this machine), 16.0 GiB" in output
    assert str(tmp_path) not in out.read_text()
    again = CliRunner().invoke(app, words)
    assert isinstance(again.exception, UserError) and "the file exists" in str(again.exception)


@pytest.mark.parametrize("named", [False, True])
def test_last_line_is_the_next_command(tmp_path: Path, named: bool) -> None:
    scans = tiny.write_scans(tmp_path / "it's mine", 2)
    out = tmp_path / "my plan.yaml"
    folders = {"--labeled-images": "imagesTr", "--labels": "labelsTr", "--unlabeled": "imagesUn"}
    options = [word for option, name in folders.items() for word in (option, str(scans / name))]
    result = CliRunner().invoke(
        app, ["plan", *(options if named else [str(scans)]), "--out", str(out), "--device", "cuda"]
    )
    *_, plan, line = result.output.splitlines()
    assert plan == f"plan: {out}" and "THIS_FILE" not in result.output
    words = ["graftseg", "train", str(out), *(options if named else ["--data", str(scans)]), "--out", "RUN"]
    assert shlex.split(line.removeprefix("next: ")) == words


def test_a_cpu_is_timed(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans", 2)
    text = api.plan(scans, tmp_path / "plan.yaml", device="cpu").read_text()
    assert "measured here on a few steps" in " ".join(text.replace("#", " ").split())


def test_scans_are_prepared_as_planned_without_a_recipe(tmp_path: Path) -> None:
    """The phantoms have 16 voxels of 1.5 mm along each axis."""
    scans = tiny.write_scans(tmp_path / "scans", 3)
    planned = make_plan(read_layout(scans), device="cuda", timed=False).recipe.data
    store = api.prepare(scans, tmp_path / "store")
    assert store.settings == planned.model_dump(mode="json")
    changed_store = api.prepare(scans, tmp_path / "other", overrides=["data.spacing=[2, 2, 2]"])
    assert {case.shape for case in changed_store.cases} == {(12, 12, 12)}


def test_a_scan_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans", 2)
    broken = next((scans / "imagesUn").iterdir())
    broken.write_bytes(b"no scan")
    with pytest.raises(UserError, match=broken.name):
        api.plan(scans, tmp_path / "plan.yaml")
    assert not (tmp_path / "plan.yaml").exists()


def test_plans_of_a_folder_do_not_depend_on_the_order_of_files(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans", 2)
    dataset = read_layout(scans)
    shuffled = [dataset.cases[place] for place in np.random.default_rng(0).permutation(len(dataset.cases))]
    one = make_plan(dataset, device="cuda", timed=False)
    object.__setattr__(dataset, "cases", tuple(shuffled))
    assert make_plan(dataset, device="cuda", timed=False).text == one.text
