"""A folder with DICOM slices of two patients is refused by all commands, without naming the patients."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import yaml
from command_line import CommandLine, entries

from dicom_fakes import write_series
from graftseg import api

FINDING = "slices of 2 patients in one scan; use a separate folder for each patient"
PATIENTS = {"Alpha^Anna": "4711", "Beta^Bert": "0815"}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny.recipe_tree(3)))
    return path


def write_both(folder: Path) -> None:
    """Write a series of each patient to one folder."""
    rng = np.random.default_rng(0)
    for number, (name, identity) in enumerate(PATIENTS.items()):
        tags: dict[str, Any] = {"PatientName": name, "PatientID": identity, "SeriesInstanceUID": f"1.2.3.{number}"}
        part = folder.parent / f"part-{number}"
        for path in write_series(part, rng.integers(-99, 99, (16, 16, 6)).astype(np.int16), (1.5, 1.5, 1.5), **tags):
            folder.mkdir(parents=True, exist_ok=True)
            path.rename(folder / f"{number}-{path.name}")
        part.rmdir()


@pytest.mark.slow
def test_two_patients_in_one_folder(cli: CommandLine, recipe: Path, tmp_path: Path) -> None:
    data = tiny.write_scans(tmp_path / "data", 3)
    api.train(recipe, data, tmp_path / "trained")
    both = data / "imagesUn" / "scan_0000"
    write_both(both)
    said = [*cli("check", data)[1:], *cli("info", data)[1:]]
    code, out, _ = cli("check", data)
    assert code == 2 and f"{FINDING.partition(';')[0]}\timagesUn/scan_0000\t" in out
    prepare = ("prepare", data, "--out", tmp_path / "store", "--recipe", recipe)
    train = ("train", recipe, "--data", data, "--out", tmp_path / "run")
    for words in (("plan", data, "--out", tmp_path / "plan.yaml"), prepare, train, (*train, "--folds", "2")):
        said.append(cli.fails(*words))
        assert f"{both}: {FINDING}" in said[-1]
    code, out, error = cli("predict", tmp_path / "trained", data / "imagesUn", "--out", tmp_path / "maps")
    assert code == 2 and out.endswith("5 label maps, 1 scan failed\n") and f"{both}: {FINDING}" in error
    code, ranked, failed = cli("rank", tmp_path / "trained", "--data", data, "--out", tmp_path / "rank.csv")
    assert code == 2 and "unlabeled_004" in ranked and f"{both}: {FINDING}" in failed
    left = entries(tmp_path)
    assert not {"plan.yaml", "store/manifest.json", "run/store/manifest.json", "run/run.json"} & left
    assert "maps/scan.nii.gz" not in left
    written = [path.read_text() for path in (tmp_path / "maps").glob("*.json")]
    everything = " ".join([*said, out, error, ranked, failed, *written, *left])
    assert not [word for pair in PATIENTS.items() for word in pair if word in everything]
    shutil.rmtree(both)
    for words in (prepare, train):
        cli.works(*words)


def test_predict_and_export_refuse_two_patients(cli: CommandLine, recipe: Path, tmp_path: Path) -> None:
    data = tiny.write_scans(tmp_path / "data", 3, unlabeled=2, test=0)
    run = tmp_path / "run"
    api.train(recipe, data, run)
    write_both(tmp_path / "both")
    for words in (
        ("predict", run, tmp_path / "both", "--out", tmp_path / "maps"),
        ("export", "onnx", run, "--out", tmp_path / "onnx", "--check", tmp_path / "both"),
    ):
        assert f"{tmp_path / 'both'}: {FINDING}" in cli.fails(*words)
    assert not (tmp_path / "onnx").exists()
    assert entries(tmp_path / "maps") == {"cases.jsonl", "classes.json", "manifest.json"}
