"""What a person sees of a check: findings, a page, JSON, a mended copy."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine
from PIL import Image

from graftseg import api
from graftseg.core.types import Geometry, Split
from graftseg.data.phantom import write_phantoms
from graftseg.data.scans import read_label, read_scan, write_scan

Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Check:
    return partial(CommandLine(capsys, monkeypatch), "check")


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    folder = tmp_path / "scans"
    counts: dict[Split, int] = {"labeled": 3, "unlabeled": 3, "test": 0}
    write_phantoms(folder, shape=(24, 24), counts=counts, seed=1, shift=0.0)
    return folder


def shift_label(scans: Path, voxels: float) -> Path:
    """Shift the first label map by a fraction of a voxel."""
    path = min((scans / "labelsTr").iterdir())
    scan = read_scan(path)
    matrix = scan.geometry.matrix
    matrix[0, 3] += voxels * scan.geometry.spacing[0]
    write_scan(path, scan.array, Geometry(scan.geometry.shape, tuple(map(tuple, matrix.tolist()))))
    return path


def test_the_comparison_of_labeled_and_unlabeled_scans(cli: Check, scans: Path) -> None:
    code, out, _ = cli(scans)
    assert code == 0
    assert out.splitlines() == [
        "Labeled and unlabeled scans can be used together: spacing and intensities are similar.",
        "3 labeled, 3 unlabeled, 0 test scans; 0 findings, 0 of them errors",
    ]


def test_a_missing_package_is_one_finding(cli: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("imagesTr/a", "imagesTr/b", "labelsTr/a", "imagesUn/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.eye(20, dtype=np.uint8)).save(tmp_path / f"{name}.png")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    code, out, _ = cli(tmp_path)
    assert code == 2
    assert [line for line in out.splitlines() if line.startswith("error")] == [
        "error\tthe package is not installed, but needed for PNG files\tpillow\t3 cases\trun pip install pillow"
    ]


def test_a_page(cli: Check, scans: Path, tmp_path: Path) -> None:
    code, out, _ = cli(scans, "--out", tmp_path / "check.html")
    assert code == 0 and out.endswith(f"{tmp_path / 'check.html'}\n")
    assert (tmp_path / "check.html").read_text().startswith("<!doctype html>")
    code, _, error = cli(scans, "--out", tmp_path / "check.txt")
    assert code == 2 and "ends in .html" in error
    assert not (tmp_path / "check.txt").exists()


def test_json(cli: Check, scans: Path) -> None:
    shift_label(scans, 0.05)
    code, out, _ = cli(scans, "--json")
    content = json.loads(out)
    assert code == 2
    assert content["verdict"] == "Not ready: fix 1 error first."
    assert content["findings"][0]["cases"] == ["labeled_000"]


def test_a_fixed_copy(cli: Check, scans: Path, tmp_path: Path) -> None:
    path = shift_label(scans, 0.05)
    before = path.read_bytes()
    code, out, _ = cli(scans, "--fix", tmp_path / "mended")
    assert code == 2
    assert f"labelsTr/{path.name}\tgeometry replaced by" in out and "differed by 0.050 voxels" in out
    assert f"{tmp_path / 'mended'}: 1 file fixed, 9 unchanged" in out
    assert path.read_bytes() == before
    assert cli(tmp_path / "mended")[0] == 0
    code, _, error = cli(scans, "--fix", tmp_path / "mended")
    assert code == 2 and "already exists" in error


def test_the_remedy_contains_the_path(cli: Check, scans: Path, tmp_path: Path) -> None:
    shift_label(scans, 0.05)
    code, out, _ = cli(scans)
    assert code == 2 and f"\t`graftseg check {scans} --fix OUT` writes a copy with" in out
    spaced = scans.rename(tmp_path / "my scans")
    assert f"`graftseg check '{spaced}' --fix OUT` writes" in cli(spaced)[1]
    folders = ("--labeled-images", spaced / "imagesTr", "--labels", spaced / "labelsTr")
    arranged = "\tif the scans are in DATA/imagesTr and the labels in DATA/labelsTr, `graftseg check DATA --fix OUT`"
    assert arranged in cli(*folders)[1]
    assert str(spaced) not in cli(spaced, "--json")[1], "what may be passed on tells no path"


def test_renumbered_values_are_printed(cli: Check, scans: Path, tmp_path: Path) -> None:
    (scans / "dataset.json").unlink()
    for path in (scans / "labelsTr").iterdir():
        scan = read_label(path)
        write_scan(path, np.where(scan.array == 2, 9, scan.array).astype(np.uint8), scan.geometry)
    code, out, _ = cli(scans, "--fix", tmp_path / "mended")
    assert code == 0
    assert "label value 3 is now 2 (label 3)\nlabel value 9 is now 3 (label 9)\n" in out
    assert set(np.unique(read_label(min((tmp_path / "mended/labelsTr").iterdir())).array)) == {0, 1, 2, 3}


def test_broken_cases_are_left_out(cli: Check, scans: Path, tmp_path: Path) -> None:
    path = min((scans / "labelsTr").iterdir())
    path.write_bytes(b"")
    code, out, _ = cli(scans, "--fix", tmp_path / "rest", "--drop")
    assert code == 2 and "labeled_000\tthe file is empty (0 bytes)" in out
    assert "0 files fixed, 1 left out, 7 unchanged" in out
    assert out.splitlines()[-1] == "3 labeled (1 broken), 3 unlabeled, 0 test scans; 1 finding, 1 of them errors"
    assert cli(tmp_path / "rest")[0] == 0
    code, _, error = cli(scans, "--drop")
    assert code == 2 and "--fix" in error


def test_nothing_to_fix(cli: Check, scans: Path, tmp_path: Path) -> None:
    code, out, _ = cli(scans, "--fix", tmp_path / "mended")
    assert code == 0 and "nothing was fixed" in out
    assert not (tmp_path / "mended").exists()


def test_the_function_returns_the_findings(scans: Path, tmp_path: Path) -> None:
    shift_label(scans, 0.05)
    examination = api.check(scans, fix=tmp_path / "mended")
    assert [finding.severity for finding in examination] == ["error"]
    assert examination.mended is not None and examination.mended.folder == tmp_path / "mended"
