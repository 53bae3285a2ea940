"""Truncated files, broken links and too large values give one error each, and no file is skipped."""

import json
import logging
import os
import signal
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from check_fakes import check, image, put
from PIL import Image

from dicom_fakes import write_series
from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case
from graftseg.data.check import examine
from graftseg.data.dataset_json import DatasetJson
from graftseg.data.fix import write_fixed_copy
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import PrepareSettings, prepare
from graftseg.data.scans import is_scan, read_scan
from graftseg.data.scans_to_predict import scan_cases
from graftseg.inference.inputs import scan_source
from graftseg.inference.output_folder import check_inputs
from scan_fakes import nifti, refused, saved
from user_errors import user_error

SETTINGS = PrepareSettings(dimensions=3)


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("name", ["a.dcm", "a"])
def test_a_zip_with_a_damaged_member(tmp_path: Path, kind: int, name: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr(name, np.random.default_rng(0).bytes(9999))
    content = bytearray(path.read_bytes())
    content[60:90] = b"\xff" * 30
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_scan(path)
    assert caught.value.code in (Code.SCAN_DAMAGED, Code.READ_FAILED) and caught.value.where.startswith(str(path))


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_voxels_too_large_for_float32(tmp_path: Path, value: float) -> None:
    array = np.zeros((2, 3, 4))
    array[1, 2, 3] = value
    refused(saved(tmp_path / "a.nii", nifti(array)), Code.SCAN_DAMAGED, "(1, 2, 3)")
    array[1, 2, 3] = 3e38
    assert read_scan(saved(tmp_path / "a.nii", nifti(array))).array.max() == 3e38


@pytest.mark.parametrize("place", ["imagesUn", "labelsTs", "imagesTs", "dataset.json"])
@pytest.mark.parametrize("target", ["self", "nowhere"])
def test_a_broken_link_is_not_skipped(root: Path, place: str, target: str) -> None:
    if (root / place).is_dir():
        for path in (root / place).iterdir():
            path.unlink()
        (root / place).rmdir()
    (root / place).unlink(missing_ok=True)
    (root / place).symlink_to(place if target == "self" else target)
    with user_error(Code.READ_FAILED, root / place, "broken link"):
        read_layout(root)


@pytest.mark.parametrize("name", ["a.nii.gz", "a.nrrd", "a.png", "a.dcm"])
@pytest.mark.parametrize("target", ["self", "nowhere"])
def test_a_scan_that_is_a_broken_link(tmp_path: Path, name: str, target: str) -> None:
    path = tmp_path / name
    path.symlink_to(name if target == "self" else target)
    refused(path, Code.READ_FAILED, "broken link")


def test_a_label_that_is_a_link_to_itself(root: Path) -> None:
    label = root / "labelsTr" / "l0.nii.gz"
    label.unlink()
    label.symlink_to(label.name)
    (finding,) = check(read_layout(root))
    assert (finding.where, finding.what) == ("labelsTr/l0.nii.gz", "broken link")


def test_a_scan_that_is_a_link_to_itself(root: Path, tmp_path: Path) -> None:
    scan = root / "imagesTr" / "l0.nii.gz"
    scan.unlink()
    scan.symlink_to(scan.name)
    assert [finding.where for finding in check(read_layout(root))] == ["imagesTr/l0.nii.gz"]
    with user_error(Code.READ_FAILED, keyword="broken link"):
        prepare(read_layout(root), tmp_path / "store", SETTINGS)
    assert not (tmp_path / "store" / "manifest.json").exists()
    cases, _ = scan_cases(root / "imagesTr", 1)
    sources = [scan_source(case, SETTINGS) for case in cases]
    check_inputs(tmp_path / "maps", sources, {"l0.nii.gz"})
    with user_error(Code.READ_FAILED, keyword="broken link"):
        sources[0].read()


def test_a_label_map_is_never_written_over_a_scan(tmp_path: Path) -> None:
    put(tmp_path, "l0", image(0))
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps" / "l0.nii.gz").symlink_to("../l0.nii.gz")
    source = scan_source(Case("l0", (tmp_path / "l0.nii.gz",), None, "test"), SETTINGS)
    with user_error(Code.UNSAFE_TARGET, keyword="label map would overwrite"):
        check_inputs(tmp_path / "maps", [source], {"l0.nii.gz"})


@pytest.mark.parametrize("target", [".", "..", "../.."])
def test_a_link_to_a_parent_folder_is_not_a_scan(tmp_path: Path, target: str) -> None:
    """Following the link would read all series at once, or the whole disk."""
    folder = tmp_path / "data" / "imagesTr"
    write_series(folder / "a", np.zeros((4, 4, 4), np.int16), (1, 1, 1))
    (folder / "loop").symlink_to(target)
    (folder / "b").symlink_to("a")
    assert [is_scan(folder / name) for name in ("a", "b", "loop")] == [True, True, False]


def test_a_circular_link_does_not_stop_the_fix(root: Path, tmp_path: Path) -> None:
    """The copy has the same link, and everything else is fixed."""
    (root / "dataset.json").write_text(json.dumps({"labels": {"background": 0, "liver": 1, "tumour": 5}}))
    for number in range(3):
        label = np.zeros((16, 16, 4), np.uint8)
        label[:2, 0, 0] = 1, 5
        put(root, f"labelsTr/l{number}", label)
    (root / "circle").symlink_to("circle")
    dataset = read_layout(root)
    mended = write_fixed_copy(dataset, examine(dataset).fingerprint, tmp_path / "mended")
    assert mended.values == {5: 2} and len(mended.files) == 3
    assert (tmp_path / "mended" / "circle").is_symlink()
    assert check(read_layout(tmp_path / "mended")) == []


@pytest.mark.parametrize("labels", [{"a": "9" * 5000}, {"9" * 5000: "a"}, {"a": "²"}])
def test_label_values_must_be_numbers(root: Path, labels: dict[str, str]) -> None:
    (root / "dataset.json").write_text(json.dumps({"labels": labels}))
    with user_error(Code.DATASET_INVALID) as caught:
        read_layout(root)
    assert len(str(caught.value)) < len(str(root)) + 200


def test_too_many_classes_are_one_finding(root: Path) -> None:
    listed = {f"class {value}": value for value in range(70_000)}
    (root / "dataset.json").write_text(json.dumps({"labels": listed}))
    (finding,) = check(read_layout(root))
    assert (finding.severity, finding.what, finding.size) == (
        "error",
        "too many classes",
        "values up to 69999, but the limit is 254",
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"II*\0hello", Code.NOT_A_SCAN),
        (b"II*\0\x08\0\0\0\0\0\x08\0\0\0", Code.SCAN_UNSUPPORTED),
        (b"II*\0", Code.NOT_A_SCAN),
    ],
)
def test_a_damaged_tiff_is_one_error(
    tmp_path: Path, content: bytes, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    """tifffile logs nothing, and the file is closed."""
    (tmp_path / "a.tif").write_bytes(content)
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        with user_error(code, tmp_path / "a.tif"):
            read_scan(tmp_path / "a.tif")
    assert caplog.records == []


@pytest.mark.parametrize("content", [{"test": ["x" * 256]}, {"training": "a/" * 4001}, {"file_ending": "x" * 252}])
def test_entries_of_dataset_json_that_are_too_long(tmp_path: Path, content: dict[str, object]) -> None:
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    with user_error(Code.DATASET_INVALID, tmp_path / "dataset.json", "too long"):
        DatasetJson.read(tmp_path)


def test_other_scans_are_read_beside_hostile_files(tmp_path: Path) -> None:
    """A picture with a changed bit and a zip with a nameless member are two findings among the others."""
    root = tmp_path / "data"
    for number in range(4):
        for folder in ("imagesTr", "labelsTr"):
            (root / folder).mkdir(parents=True, exist_ok=True)
            pixels = np.zeros((9, 9), np.uint8)
            pixels[2 : 4 + number, 3:6] = 1
            Image.fromarray(pixels).save(root / folder / f"case{number}.png")
    damaged = bytearray((root / "imagesTr/case1.png").read_bytes())
    damaged[-20] ^= 1
    (root / "imagesTr/case1.png").write_bytes(damaged)
    with zipfile.ZipFile(root / "imagesTr/other.zip", "w") as archive:
        archive.writestr("a", b"content")
    content = (root / "imagesTr/other.zip").read_bytes()
    (root / "imagesTr/other.zip").write_bytes(content.replace(b"a", b"\0"))
    examination = examine(read_layout(root))
    found = {Path(finding.where).name for finding in examination.findings if finding.severity == "error"}
    assert {"case1.png", "other.zip"} <= found
    assert not found & {f"case{number}.png" for number in (0, 2, 3)}


@pytest.fixture
def time_limit() -> Iterator[None]:
    """Fail after a minute instead of waiting forever."""

    def fail(*_: object) -> None:
        raise AssertionError("still waiting")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize("name", ["x.dcm", "x", "x.nii.gz", "x.zip", "x.mhd", "manifest.json", "dataset.json"])
@pytest.mark.parametrize("place", ["imagesTr", "labelsTr", "imagesTr/series", "."])
def test_a_pipe_does_not_stop_the_program(root: Path, place: str, name: str) -> None:
    """Reading a pipe without a writer would wait forever."""
    (root / "imagesTr" / "series").mkdir(exist_ok=True)
    write_series(root / "imagesTr" / "series", np.zeros((4, 4, 4), np.int16), (1, 1, 1))
    (root / place / name).unlink(missing_ok=True)
    os.mkfifo(root / place / name)
    dataset = read_layout(root)
    check(dataset)
    is_read_as_file = place != "imagesTr/series"
    for case in dataset.cases:
        if is_read_as_file and case.images[0].name == name:
            with user_error(Code.NOT_A_SCAN, root / place / name):
                dataset.reader.image(case)
    scan_cases(root / "imagesTr", 1, [])
