"""Export to DICOM segmentations: round trips, references to the series, and privacy."""

import json
import logging
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from export_fakes import write_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Geometry
from graftseg.data.formats.dicom_tags import pydicom_package, silence_dicom_packages
from graftseg.data.scans import Scan, grid_difference, read_geometry, read_label, write_label
from graftseg.inference.export import Request, export_run
from graftseg.inference.export.dicomseg import Series, _segment, as_frames, series_in
from graftseg.inference.export.segment_codes import GENERIC
from user_errors import user_error

pydicom = pytest.importorskip("pydicom")
highdicom = pytest.importorskip("highdicom")

CLASSES = ("background", "ring", "core")
SHAPE = (6, 5, 4)
SPACING = (0.5, 0.75, 2.0)
ALONG, DOWN = (0.8, 0.6, 0.0), (-0.6, 0.8, 0.0)
ORIGIN = (-30.0, 12.5, 100.0)
PERSON = {"PatientName": "Doe^Jane", "PatientID": "MRN-4711", "PatientBirthDate": "19700101", "PatientSex": "F"}


def write_series(folder: Path, number: int = 1, *, shift: float = 0.0, leave_out: tuple[str, ...] = ()) -> str:
    """Write CT slices with tilted axes, with file names in reverse order. Return the UID of the series."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    series, study, frame = generate_uid(), generate_uid(), generate_uid()
    folder.mkdir(parents=True, exist_ok=True)
    columns, rows, slices = SHAPE
    for z in range(slices):
        meta = FileMetaDataset()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
        path = folder / f"{number}-{slices - z}.dcm"
        one = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
        one.SOPClassUID, one.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
        one.SeriesInstanceUID, one.StudyInstanceUID, one.FrameOfReferenceUID = series, study, frame
        for name, value in PERSON.items():
            setattr(one, name, value)
        one.Modality, one.StudyID, one.AccessionNumber = "CT", "1", "99"
        one.StudyDate, one.StudyTime, one.SeriesNumber, one.InstanceNumber = "20200101", "120000", number, z + 1
        one.Rows, one.Columns, one.PixelSpacing, one.SliceThickness = rows, columns, [SPACING[1], SPACING[0]], 2.0
        one.ImageOrientationPatient = [*ALONG, *DOWN]
        one.ImagePositionPatient = [ORIGIN[0] + shift, ORIGIN[1], ORIGIN[2] + z * SPACING[2]]
        one.SamplesPerPixel, one.PhotometricInterpretation = 1, "MONOCHROME2"
        one.BitsAllocated, one.BitsStored, one.HighBit, one.PixelRepresentation = 16, 16, 15, 1
        one.PixelData = np.zeros((rows, columns), "<i2").tobytes()
        for name in leave_out:
            delattr(one, name)
        one.save_as(path, enforce_file_format=True)
    return str(series)


def affine() -> NDArray[np.float64]:
    """Return the affine from columns, rows and slices to RAS coordinates."""
    matrix = np.eye(4)
    matrix[:3, :3] = np.array([ALONG, DOWN, (0.0, 0.0, 1.0)]).T * SPACING
    matrix[:3, 3] = ORIGIN
    matrix[:2] *= -1
    return matrix


def turned(labels: NDArray[Any], order: tuple[int, ...], flips: tuple[bool, ...]) -> tuple[NDArray[Any], Geometry]:
    """Return the same label map with its axes in another order and direction."""
    matrix, array = affine(), labels
    for axis, flip in enumerate(flips):
        if flip:
            matrix[:3, 3] += matrix[:3, axis] * (labels.shape[axis] - 1)
            matrix[:3, axis] *= -1
            array = np.flip(array, axis)
    matrix = matrix[:, [*order, 3]]
    array = np.ascontiguousarray(array.transpose(order))
    return array, Geometry(array.shape, tuple(tuple(map(float, row)) for row in matrix))


def labels_of(seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 3, SHAPE).astype(np.uint8)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run", tiny.tiny_recipe(3), CLASSES)


def export(run: RunFolder, data: Path, out: Path) -> list[str]:
    return export_run("dicomseg", Request(run, out, data=data))


def test_round_trip(run: RunFolder, tmp_path: Path) -> None:
    labels, series = labels_of(), write_series(tmp_path / "cases" / "liver_07")
    array, geometry = turned(labels, (2, 0, 1), (True, False, True))
    write_label(run.predictions / "liver_07.nii.gz", array, geometry)
    lines = export(run, tmp_path / "cases" / "liver_07", tmp_path / "out")
    assert lines == [f"{tmp_path / 'out'}: 1 DICOM segmentation of ring, core"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["liver_07.dcm"]
    found = highdicom.seg.segread(tmp_path / "out" / "liver_07.dcm")
    assert [found.get_segment_description(number).segment_label for number in (1, 2)] == ["ring", "core"]
    sources = [uid for _, _, uid in found.get_source_image_uids()]
    headers = {str(one.SOPInstanceUID): one for one in map(pydicom.dcmread, (tmp_path / "cases").rglob("*.dcm"))}
    frames = found.get_pixels_by_source_instance(sources, combine_segments=True, rescale_fractional=False)
    for uid, frame in zip(sources, frames, strict=True):
        z = round((headers[uid].ImagePositionPatient[2] - ORIGIN[2]) / SPACING[2])
        assert np.array_equal(frame, labels[:, :, z].T)
    assert found.ReferencedSeriesSequence[0].SeriesInstanceUID == series != found.SeriesInstanceUID
    first = next(iter(headers.values()))
    for name in ("PatientName", "PatientID", "StudyInstanceUID", "FrameOfReferenceUID"):
        assert found[name].value == first[name].value


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.permutations(range(3)),
    flips=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    seed=st.integers(0, 9),
)
def test_any_order_of_axes_is_undone(order: list[int], flips: tuple[bool, ...], seed: int) -> None:
    labels = labels_of(seed)
    array, geometry = turned(labels, tuple(order), flips)
    frames = as_frames(Scan(array, geometry), Series((), SHAPE, affine()))
    assert frames is not None and np.array_equal(frames, labels.T)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.permutations(range(3)),
    flips=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    seed=st.integers(0, 999),
    is_sparse=st.booleans(),
    is_multi_frame=st.booleans(),
)
def test_reading_an_exported_segmentation_is_the_identity(
    run: RunFolder,
    tmp_path_factory: pytest.TempPathFactory,
    order: list[int],
    flips: tuple[bool, ...],
    seed: int,
    is_sparse: bool,
    is_multi_frame: bool,
) -> None:
    folder, labels = tmp_path_factory.mktemp("export"), labels_of(seed)
    image = folder / "cases" / "a"
    if is_sparse:
        labels[:, :, seed % SHAPE[2]] = 0
        labels[labels == 1 + seed % 2] = 0
    write_label(run.predictions / "a.nii.gz", *turned(labels, tuple(order), flips))
    if is_multi_frame:
        image = folder / "cases" / "a.dcm"
        write_multi_frame(image)
    else:
        write_series(image)
    export(run, image, folder / "out")
    found = read_label(folder / "out" / "a.dcm", image, dict(enumerate(CLASSES)))
    assert np.array_equal(found.array, labels) and found.guesses == ()
    assert grid_difference(found.geometry, read_geometry(image)) is None


def test_a_label_map_segmentation_of_highdicom_is_read(tmp_path: Path) -> None:
    labels = labels_of(5)
    write_series(tmp_path / "a")
    (series,) = series_in(tmp_path / "a")
    with silence_dicom_packages():
        highdicom.seg.Segmentation(
            source_images=list(series.slices)[::-1],
            pixel_array=labels.T[::-1].copy(),
            segmentation_type=highdicom.seg.SegmentationTypeValues.LABELMAP,
            segment_descriptions=[_segment(1, "ring", GENERIC), _segment(2, "core", GENERIC)],
            series_instance_uid=highdicom.UID(),
            series_number=1,
            sop_instance_uid=highdicom.UID(),
            instance_number=1,
            manufacturer="none",
            manufacturer_model_name="none",
            software_versions="1",
            device_serial_number="0",
        ).save_as(tmp_path / "a.dcm")
    found = read_label(tmp_path / "a.dcm", tmp_path / "a", dict(enumerate(CLASSES)))
    assert np.array_equal(found.array, labels)


def test_another_grid_is_detected() -> None:
    series = Series((), SHAPE, affine())
    array, geometry = turned(labels_of(), (0, 1, 2), (False, False, False))
    moved = geometry.matrix
    moved[0, 3] += 0.02 * SPACING[0]
    assert as_frames(Scan(array, Geometry(SHAPE, tuple(map(tuple, moved)))), series) is None
    assert as_frames(Scan(array[:-1], Geometry((5, 5, 4), geometry.affine)), series) is None
    coarser = geometry.matrix
    coarser[:3, 0] *= 2
    assert as_frames(Scan(array, Geometry(SHAPE, tuple(map(tuple, coarser)))), series) is None


def test_several_cases_and_an_empty_label_map(run: RunFolder, tmp_path: Path) -> None:
    array, geometry = turned(labels_of(), (0, 1, 2), (False, False, False))
    for name in ("a", "b_0000", "c"):
        write_series(tmp_path / "cases" / name)
    write_label(run.predictions / "a.nii.gz", array, geometry)
    write_label(run.predictions / "b.nii.gz", np.zeros_like(array), geometry)
    lines = export(run, tmp_path / "cases", tmp_path / "out")
    assert lines[1] == f"left out 1 case without a label map in {run.predictions}"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.dcm", "b.dcm"]
    assert not highdicom.seg.segread(tmp_path / "out" / "b.dcm").pixel_array.any()


def write_multi_frame(path: Path) -> None:
    """Write the slices of ``write_series`` as one enhanced CT file, highest slice first."""
    from pydicom.dataset import Dataset
    from pydicom.uid import EnhancedCTImageStorage

    write_series(path.parent / "slices")
    files = sorted((path.parent / "slices").iterdir())
    slices = sorted(map(pydicom.dcmread, files), key=lambda one: -one.InstanceNumber)
    one, shared, measures, plane = slices[0], Dataset(), Dataset(), Dataset()
    measures.PixelSpacing, measures.SliceThickness = one.PixelSpacing, one.SliceThickness
    plane.ImageOrientationPatient = one.ImageOrientationPatient
    shared.PixelMeasuresSequence, shared.PlaneOrientationSequence = [measures], [plane]
    frames = []
    for each in slices:
        place, frame = Dataset(), Dataset()
        place.ImagePositionPatient = each.ImagePositionPatient
        frame.PlanePositionSequence = [place]
        frames.append(frame)
    one.SharedFunctionalGroupsSequence, one.PerFrameFunctionalGroupsSequence = [shared], frames
    one.NumberOfFrames, one.PixelData = len(slices), b"".join(each.PixelData for each in slices)
    one.SOPClassUID = one.file_meta.MediaStorageSOPClassUID = EnhancedCTImageStorage
    for name in ("PixelSpacing", "SliceThickness", "ImageOrientationPatient", "ImagePositionPatient"):
        delattr(one, name)
    one.save_as(path)
    shutil.rmtree(path.parent / "slices")


def test_scans_are_found_as_in_predict(run: RunFolder, tmp_path: Path) -> None:
    """A folder, a zip, a multi-frame file and a scan in another format, next to each other."""
    cases, labels = tmp_path / "cases", labels_of()
    write_series(cases / "folder")
    write_series(tmp_path / "unpacked")
    shutil.make_archive(str(cases / "zipped"), "zip", tmp_path / "unpacked")
    write_multi_frame(cases / "frames.dcm")
    array, geometry = turned(labels, (2, 0, 1), (True, False, True))
    write_label(cases / "other.nii.gz", array, geometry)
    names = ["folder", "frames", "zipped"]
    for name in names:
        assert (
            grid_difference(
                turned(labels, (0, 1, 2), (False, False, False))[1], read_geometry(next(cases.glob(f"{name}*")))
            )
            is None
        )
    for name in (*names, "other"):
        write_label(run.predictions / f"{name}.nii.gz", array, geometry)
    export(run, cases, tmp_path / "out")
    assert sorted(path.stem for path in (tmp_path / "out").iterdir()) == names
    for name in names:
        found = highdicom.seg.segread(tmp_path / "out" / f"{name}.dcm").get_volume(combine_segments=True)
        planes, (slices, *_) = found.array, found.spatial_shape
        upward = found.affine[2, 0] > 0
        assert slices == SHAPE[2] and np.array_equal(planes if upward else planes[::-1], labels.T)
    for place in ("zipped.zip", "frames.dcm"):
        export(run, cases / place, tmp_path / place)
        assert [path.stem for path in (tmp_path / place).iterdir()] == [place.split(".")[0]]


def test_the_series_that_was_predicted_is_found(run: RunFolder, tmp_path: Path) -> None:
    array, geometry = turned(labels_of(), (0, 1, 2), (False, False, False))
    write_label(run.predictions / "a.nii.gz", array, geometry)
    write_series(tmp_path / "a", 1, shift=5.0)
    right = write_series(tmp_path / "a", 2)
    (tmp_path / "a" / "notes.txt").write_text("no DICOM")
    export(run, tmp_path / "a", tmp_path / "out")
    found = pydicom.dcmread(tmp_path / "out" / "a.dcm")
    assert found.ReferencedSeriesSequence[0].SeriesInstanceUID == right
    write_series(tmp_path / "a", 3)
    with pytest.raises(UserError, match="2 of its series"):
        export(run, tmp_path / "a", tmp_path / "again")


def test_errors_contain_no_personal_data(run: RunFolder, tmp_path: Path) -> None:
    array, geometry = turned(labels_of(), (0, 1, 2), (False, False, False))
    write_label(run.predictions / "a.nii.gz", array, geometry)

    def refused(data: Path | None) -> str:
        with pytest.raises(UserError) as error:
            export_run("dicomseg", Request(run, tmp_path / "out", data=data))
        assert not any(value in str(error.value) for value in PERSON.values() if len(value) > 1)
        return str(error.value)

    assert "--data: missing" in refused(None)
    assert "no such file" in refused(tmp_path / "a.zip")
    write_series(tmp_path / "one" / "a", shift=9.0)
    assert "none of its series" in refused(tmp_path / "one" / "a")
    write_series(tmp_path / "two" / "a", leave_out=("FrameOfReferenceUID",))
    assert "lack FrameOfReferenceUID" in refused(tmp_path / "two" / "a")
    write_series(tmp_path / "five" / "a", leave_out=("ImagePositionPatient",))
    assert "ImagePositionPatient" in refused(tmp_path / "five" / "a")
    (tmp_path / "three" / "a").mkdir(parents=True)
    (tmp_path / "three" / "a" / "file").write_text("no DICOM")
    assert "no scan" in refused(tmp_path / "three" / "a")
    write_label(tmp_path / "nifti" / "a.nii.gz", array, geometry)
    assert "no DICOM scan" in refused(tmp_path / "nifti")
    write_series(tmp_path / "four" / "b")
    assert "no label map of the case" in refused(tmp_path / "four" / "b")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".partial*"))


@pytest.mark.parametrize(
    "tags",
    [
        # A name with one part, values that are too long, and an invalid date.
        {"PatientName": "JANE DOE"},
        {"PatientName": 40 * "JANE", "PatientID": 40 * "JANE"},
        {"PatientName": "JANE=DOE=X=Y"},
        {"PatientBirthDate": "JANE"},
    ],
)
def test_other_packages_print_no_personal_data(
    run: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tags: dict[str, str],
) -> None:
    array, geometry = turned(labels_of(), (0, 1, 2), (False, False, False))
    write_label(run.predictions / "a.nii.gz", array, geometry)
    for name, value in tags.items():
        monkeypatch.setitem(PERSON, name, value)
    with silence_dicom_packages():
        write_series(tmp_path / "a")
    pydicom_package()  # silences the package for the rest of the process
    levels = [logging.getLogger(name).level for name in ("pydicom", "highdicom")]
    caplog.clear()
    with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.DEBUG):
        warnings.simplefilter("always")
        try:
            lines = export(run, tmp_path / "a", tmp_path / "out")
        except UserError as error:
            lines = [str(error)]
            assert "PatientBirthDate" in tags and "(ValueError)" in lines[0]
        else:
            with silence_dicom_packages():
                assert pydicom.dcmread(tmp_path / "out" / "a.dcm").PatientName == PERSON["PatientName"]
    printed = [*lines, *(str(one.message) for one in warned), caplog.text, *capfd.readouterr()]
    assert not [text for text in printed if "JANE" in text]
    assert levels == [logging.getLogger(name).level for name in ("pydicom", "highdicom")]


def test_an_invalid_header_is_not_quoted(run: RunFolder, tmp_path: Path) -> None:
    array, geometry = turned(labels_of(), (0, 1, 2), (False, False, False))
    write_label(run.predictions / "a.nii.gz", array, geometry)
    write_series(tmp_path / "a")
    for path in (tmp_path / "a").iterdir():
        content = path.read_bytes()
        assert content.count(b"0.75\\0.5") == 1
        path.write_bytes(content.replace(b"0.75\\0.5", b"JANE\\0.5"))
    with user_error(Code.DICOM_SERIES, "a") as caught:
        export(run, tmp_path / "a", tmp_path / "out")
    assert "JANE" not in str(caught.value) and not (tmp_path / "out").exists()


def test_a_series_without_personal_data(run: RunFolder, tmp_path: Path) -> None:
    array, geometry = turned(labels_of(), (0, 1, 2), (False, False, False))
    write_label(run.predictions / "a.nii.gz", array, geometry)
    write_series(tmp_path / "a", leave_out=tuple(PERSON))
    export(run, tmp_path / "a", tmp_path / "out")
    assert not pydicom.dcmread(tmp_path / "out" / "a.dcm").PatientName


def test_slices_are_sorted_by_position(tmp_path: Path) -> None:
    write_series(tmp_path / "a")
    (series,) = series_in(tmp_path / "a")
    assert [one.InstanceNumber for one in series.slices] == [1, 2, 3, 4] and series.shape == SHAPE
    np.testing.assert_allclose(series.affine, affine())


def test_codes_of_classes(run: RunFolder, tmp_path: Path) -> None:
    array, geometry = turned(labels_of(), (0, 1, 2), (False, False, False))
    write_label(run.predictions / "a.nii.gz", array, geometry)
    write_series(tmp_path / "a")
    heart = {"value": "80891009", "meaning": "Heart"}
    abnormal = {"value": "49755003", "meaning": "Morphologically Abnormal Structure"}
    neoplasm = {"value": "108369006", "meaning": "Neoplasm"}
    content = {"core": {"category": abnormal, "type": neoplasm, "region": heart}}
    (run.path / "codes.json").write_text(json.dumps(content))
    assert "ring" in export(run, tmp_path / "a", tmp_path / "out")[-1]
    ring, core = pydicom.dcmread(tmp_path / "out" / "a.dcm").SegmentSequence

    def code(sequence: Any) -> tuple[str, str, str]:
        (one,) = sequence
        return one.CodeValue, one.CodingSchemeDesignator, one.CodeMeaning

    assert code(core.SegmentedPropertyCategoryCodeSequence) == ("49755003", "SCT", abnormal["meaning"])
    assert code(core.SegmentedPropertyTypeCodeSequence) == ("108369006", "SCT", "Neoplasm")
    assert code(core.AnatomicRegionSequence) == ("80891009", "SCT", "Heart")
    assert code(ring.SegmentedPropertyTypeCodeSequence) == ("85756007", "SCT", "Tissue")
    assert "AnatomicRegionSequence" not in ring
    content["ring"] = {"type": heart}
    (tmp_path / "mine.json").write_text(json.dumps(content))
    request = Request(run, tmp_path / "again", data=tmp_path / "a", codes=tmp_path / "mine.json")
    assert len(export_run("dicomseg", request)) == 1
    ring, _ = pydicom.dcmread(tmp_path / "again" / "a.dcm").SegmentSequence
    assert code(ring.SegmentedPropertyTypeCodeSequence) == ("80891009", "SCT", "Heart")
    (tmp_path / "mine.json").write_text(json.dumps({"spleen": {"type": heart}}))
    with user_error(Code.UNKNOWN_NAME, "mine.json"):
        export_run("dicomseg", replace(request, out=tmp_path / "third"))
    assert not (tmp_path / "third").exists()
