"""Data are named by folders, never by full paths or home folders."""

from pathlib import Path

import pytest
from report_fakes import CASES, write_manifest, write_predictions
from tiny import tiny_recipe, write_scans

from graftseg import api
from graftseg.core.predictions import PredictedCase
from graftseg.reporting.facts import Provenance, provenance_of
from graftseg.reporting.results import Results, read_results
from graftseg.reporting.text import folder_name


@pytest.mark.parametrize(
    ("folder", "name"),
    [("/data/liver", "liver"), ("/home/someone", ""), ("/Users/someone", ""), ("/someone", ""), ("/", "")],
)
def test_a_home_is_not_named(folder: str, name: str) -> None:
    assert folder_name(Path(folder)) == name


def predicted(tmp_path: Path, images: list[str]) -> Results:
    results = read_results(write_predictions(tmp_path / "run", tmp_path / "labels", dict.fromkeys(CASES, 6.0)))
    assert results is not None
    write_manifest(results.folder, *(PredictedCase("a", (image,), "a.nii.gz", 0.1) for image in images))
    return results


@pytest.mark.parametrize(
    ("images", "scans"),
    [
        (["/data/liver/imagesTs/a.nii.gz", "/data/liver/imagesTs/b.nii.gz"], "liver/imagesTs"),
        (["/home/someone/imagesTs/a.nii.gz"], "imagesTs"),
        (["/home/someone/new/a.nii.gz"], "new"),
        (["/home/someone/a.nii.gz"], ""),
        (["/data/one/a.nii.gz", "/data/two/b.nii.gz"], ""),
        ([], ""),
    ],
)
def test_test_scans_are_named_by_their_folder(tmp_path: Path, images: list[str], scans: str) -> None:
    assert provenance_of(None, predicted(tmp_path, images)) == Provenance("", scans)
    assert provenance_of(None, None) == Provenance()


def test_a_report_names_the_folder_of_the_scans(tmp_path: Path) -> None:
    scans = write_scans(tmp_path / "liver & co", labeled=2, unlabeled=2, test=2)
    api.train(tiny_recipe(name="planned"), scans, tmp_path / "run", device="cpu")
    page = api.test(tmp_path / "run", device="cpu").report.read_text()
    assert "<h1>crescent, ring and core in liver &amp; co, by bcp</h1>" in page
    assert '<th scope="row">Data</th><td>liver &amp; co</td>' in page
    assert page.count("liver &amp; co/imagesTs") == 2 and str(tmp_path) not in page
