"""Guesses about ambiguous files: slices without positions, and volumes that may be time points."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_fakes import check

from dicom_fakes import AXIAL, write_slice
from graftseg import api
from graftseg.core.errors import Code
from graftseg.data.formats.dicom import read_dicom
from graftseg.data.formats.scan import Guess, guess_lines
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import PrepareSettings, prepare
from graftseg.data.scans import VOLUMES_ARE_CHANNELS, read_case, read_geometry, read_scan, write_label
from graftseg.inference.inputs import sources_in
from scan_fakes import nifti, ramp, refused, saved

SETTINGS = PrepareSettings(dimensions=3)
SECRETS = ("Doe", "Jane", "12345", "Elsewhere")
OPEN = "no slice has a position (ImagePositionPatient): order, direction and slice spacing are guesses"
CHANNELS = "the volumes of one file are assumed to be channels"


def unplaced(folder: Path, count: int = 5, *, numbered: bool = True, **tags: Any) -> Path:
    """Write a series without positions. The pixels of slice ``z`` are ``z``, and file names are in reverse order."""
    for z in range(count):
        own = {"InstanceNumber": z + 1} if numbered else {}
        pixels = np.full((16, 16), z, np.int16)
        pixels[0, 0] += 7
        write_slice(folder / f"{count - z:03d}.dcm", pixels, None, InstitutionName="Saint Elsewhere", **own, **tags)
    return folder


@pytest.mark.parametrize(
    ("tags", "order", "distance", "words"),
    [
        ({}, "InstanceNumber", 2.0, "2 mm apart (SliceThickness)"),
        ({"SpacingBetweenSlices": 3.5}, "InstanceNumber", 3.5, "3.5 mm apart (SpacingBetweenSlices)"),
        ({"SpacingBetweenSlices": -3}, "InstanceNumber", 3.0, "3 mm apart (SpacingBetweenSlices)"),
        ({"SliceThickness": -4}, "InstanceNumber", 4.0, "4 mm apart (SliceThickness)"),
        ({"SliceThickness": None}, "InstanceNumber", 1.0, "1 mm apart (default)"),
        ({"SliceThickness": 0, "numbered": False}, "file name", 1.0, "1 mm apart (default)"),
    ],
)
def test_slices_without_positions(
    tmp_path: Path, tags: dict[str, Any], order: str, distance: float, words: str
) -> None:
    scan = read_scan(unplaced(tmp_path / "a", **tags))
    values = scan.array[0, 5, 5].tolist()
    assert values == ([0, 1, 2, 3, 4] if tags.get("numbered", True) else [4, 3, 2, 1, 0])
    assert scan.geometry.spacing == (0.5, 0.5, distance) and not scan.geometry.is_placed
    (guess,) = scan.guesses
    assert (guess.where, guess.what) == (tmp_path / "a", OPEN)
    assert guess.assumed == f"5 slices ordered by {order}, {words}, lowest slice first"
    assert not [secret for secret in SECRETS if secret in str(guess)]


def test_slices_with_positions_need_no_guess(tmp_path: Path) -> None:
    for z in range(3):
        write_slice(tmp_path / "a" / f"{z}.dcm", np.zeros((4, 4), np.int16), (0, 0, 3 * z))
    assert read_dicom(tmp_path / "a").guesses == ()


def test_one_slice_with_orientation_but_no_position(tmp_path: Path) -> None:
    write_slice(tmp_path / "a.dcm", np.zeros((4, 4), np.int16), None, ImageOrientationPatient=list(AXIAL))
    (guess,) = read_scan(tmp_path / "a.dcm").guesses
    assert guess.assumed.startswith("1 slice ordered by ")


def dicom_data(root: Path) -> Path:
    for name in ("labeled", "other"):
        folder = unplaced(root / "imagesTr" / name, 16)
        label = np.zeros((16, 16, 16), np.uint8)
        label[4:8, 4:8, 4:8] = 1
        write_label(root / "labelsTr" / f"{name}.nii.gz", label, read_geometry(folder))
    return root


def test_check_reports_slices_without_positions(tmp_path: Path) -> None:
    found = [finding for finding in check(read_layout(dicom_data(tmp_path))) if finding.what == OPEN]
    assert [(finding.severity, finding.where) for finding in found] == [("warning", "labeled"), ("warning", "other")]
    assert "16 slices" in found[0].size and "2 mm apart (SliceThickness)" in found[0].size
    assert found[0].remedy.startswith("export the series again with positions")


def test_prepare_and_predict_warn_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = dicom_data(tmp_path / "data")
    with caplog.at_level(logging.WARNING):
        # without a recipe the scans are read for a plan first
        api.prepare(data, tmp_path / "store")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    for name, line in zip(("labeled", "other"), lines, strict=True):
        assert line.startswith(f"{data / 'imagesTr' / name}: {OPEN} (16 slices ordered by")
    caplog.clear()
    (source,), failures = sources_in(data / "imagesTr" / "other", SETTINGS, 1)
    assert not failures
    with caplog.at_level(logging.WARNING):
        source.grid()
        source.read()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{data / 'imagesTr' / 'other'}: {OPEN}")
    assert not [secret for secret in SECRETS if secret in "".join(lines) + caplog.text]


def test_many_guesses_of_a_kind_are_one_line() -> None:
    guesses = [Guess(Path(f"/scans/{number}"), "open", f"{number} mm", "close it") for number in range(5)]
    assert [*guess_lines(guesses)] == ["/scans/0 and 4 more: open (0 mm); close it"]
    assert [*guess_lines(guesses[:2])] == ["/scans/0: open (0 mm); close it", "/scans/1: open (1 mm); close it"]


def series(path: Path, volumes: int = 4, step: float = 1, units: int = 10, **fields: Any) -> Path:
    """Write a file with several volumes. Units of 10 are millimeters and seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"pixdim": [1, 1, 1, 1, step, 1, 1, 1], "xyzt_units": units, **fields}
    return saved(path, nifti(ramp(16, 16, 16, volumes), content))


def data_of_series(root: Path, description: dict[str, Any] | None = None, **fields: Any) -> Path:
    for name in ("labeled", "other"):
        image = series(root / "imagesTr" / f"{name}.nii.gz", **fields)
        label = np.zeros((16, 16, 16), np.uint8)
        label[4:8, 4:8, 4:8] = 1
        (root / "labelsTr").mkdir(exist_ok=True)
        write_label(root / "labelsTr" / f"{name}.nii.gz", label, read_geometry(image, VOLUMES_ARE_CHANNELS))
    if description is not None:
        (root / "dataset.json").write_text(json.dumps(description))
    return root


def test_seconds_may_be_time(tmp_path: Path) -> None:
    (guess,) = read_scan(series(tmp_path / "a.nii")).guesses
    assert (guess.what, guess.assumed) == (CHANNELS, "4 channels, 1 s apart according to the header")
    assert guess.remedy.startswith('if the volumes are channels, name them in dataset.json, as in "modality": {')
    for certain in (read_scan(tmp_path / "a.nii", 4), read_case([tmp_path / "a.nii"], VOLUMES_ARE_CHANNELS)):
        assert certain.guesses == () and len(certain.array) == 4
    assert read_scan(tmp_path / "a.nii", 3).guesses == (guess,)


@pytest.mark.parametrize(("step", "units"), [(0, 10), (1, 2), (1, 0), (0, 0)])
def test_headers_without_time(tmp_path: Path, step: float, units: int) -> None:
    assert read_scan(series(tmp_path / "a.nii", step=step, units=units)).guesses == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"intent_code": 2001},
        {"descrip": b"rest fMRI, run 1"},
        {"intent_name": b"Time series"},
        {"descrip": b"cine short axis"},
        {"step": 2.5},
        {"units": 18},
        {"volumes": 20},
    ],
)
def test_time_series_are_refused_unless_their_channels_are_named(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = series(tmp_path / "a.nii", **{"units": 2, **fields})
    volumes = fields.get("volumes", 4)
    refused(path, Code.SCAN_UNSUPPORTED, f"a time series of {volumes} volumes")
    assert len(read_scan(path, volumes).array) == volumes and read_scan(path, volumes).guesses == ()
    assert read_geometry(path, volumes).shape == (16, 16, 16)


NAMES = {str(channel): name for channel, name in enumerate(("FLAIR", "T1w", "t1gd", "T2w"))}


@pytest.mark.parametrize("fields", [{}, {"step": 2.5}, {"units": 18}])
def test_named_channels_are_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture, fields: dict[str, Any]) -> None:
    """Four channels in one file, as for the brain tumors of the Medical Segmentation Decathlon."""
    root = data_of_series(tmp_path / "data", {"modality": NAMES, "labels": {"background": 0, "tumour": 1}}, **fields)
    dataset = read_layout(root)
    assert not [finding for finding in check(dataset) if finding.severity == "error" or finding.what == CHANNELS]
    assert prepare(dataset, tmp_path / "store", SETTINGS).channels == 4
    assert caplog.records == []
    (source, _), _ = sources_in(root / "imagesTr", SETTINGS, 4)
    assert len(source.read().image) == 4 and caplog.records == []


def test_ambiguous_volumes_are_a_finding_and_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = read_layout(data_of_series(tmp_path / "data"))
    found = [finding for finding in check(dataset) if finding.what == CHANNELS]
    assert [(finding.severity, finding.where, finding.size) for finding in found] == [
        ("warning", "labeled", "4 channels, 1 s apart according to the header"),
        ("warning", "other", "4 channels, 1 s apart according to the header"),
    ]
    prepare(dataset, tmp_path / "store", SETTINGS)
    assert [record.getMessage().split(": ")[1].split(" (")[0] for record in caplog.records] == [CHANNELS] * 2


def test_a_time_series_is_a_finding_of_the_check(tmp_path: Path) -> None:
    dataset = read_layout(data_of_series(tmp_path / "data", {"modality": {"0": "MRI"}}, step=2.0))
    found = check(dataset)
    assert [(finding.severity, finding.where) for finding in found] == [
        ("error", "imagesTr/labeled.nii.gz"),
        ("error", "imagesTr/other.nii.gz"),
    ]
    assert "a time series of 4 volumes" in found[0].what
