"""DICOM cases, as a folder or a file: choice of the series, geometry and refused input."""

import json
import logging
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
import SimpleITK
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydicom.encaps import encapsulate, get_frame
from pydicom.uid import (
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    MediaStorageDirectoryStorage,
    RLELossless,
    generate_uid,
)
from test_formats_itk import rotation

from dicom_fakes import write_enhanced, write_series, write_slice
from graftseg import api
from graftseg.core.errors import Code
from graftseg.data.formats import dicom_pixels
from graftseg.data.grid import axis_codes
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import source_of, unchanged
from graftseg.data.scans import is_scan, read_geometry, read_label, read_scan, write_label
from graftseg.data.scans_to_predict import scan_cases
from user_errors import user_error

fuzz = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
Volume = NDArray[np.int16]
PERSON: dict[str, Any] = {
    "PatientName": "Doe^Jane",
    "PatientID": "12345",
    "PatientBirthDate": "19700102",
    "InstitutionName": "Saint Elsewhere",
    "SeriesDescription": "Doe follow-up",
}
SECRETS = ("Doe", "12345", "19700102", "Elsewhere")


def series(folder: Path, volume: Volume, spacing: Sequence[float] = (0.7, 0.8, 2.5), **tags: Any) -> Path:
    write_series(folder, volume, spacing, **{"SeriesInstanceUID": generate_uid(), **tags})
    return folder


def zipped(folder: Path, target: Path, prefix: str = "x/") -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, prefix + file.name)
    return target


def refused(path: Path, code: Code, keyword: str = "") -> str:
    """Expect a UserError with this code that does not identify a person. Return its text."""
    with user_error(code, path, keyword) as caught:
        read_scan(path)
    assert not any(secret in str(caught.value) for secret in SECRETS)
    return str(caught.value)


def by_itk(folder: Path) -> Any:
    reader = SimpleITK.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder)))
    return reader.Execute()


@fuzz
@given(
    angles=st.tuples(*[st.floats(-1.5, 1.5)] * 3),
    spacing=st.tuples(*[st.floats(0.3, 5.0)] * 3),
    origin=st.tuples(*[st.floats(-100, 100)] * 3),
    is_reversed=st.booleans(),
)
def test_voxel_positions_equal_those_of_itk(
    volume: Volume, tmp_path: Path, angles: Any, spacing: Any, origin: Any, is_reversed: bool
) -> None:
    axes, folder = rotation(angles, (False, False, False)), tmp_path / "case"
    uid = generate_uid()
    for z in range(3):
        position = np.array(origin) + axes[:, 2] * spacing[2] * z
        tags = {"ImageOrientationPatient": [float(f"{value:.9g}") for value in axes[:, :2].T.ravel()]}
        tags |= {"PixelSpacing": [spacing[1], spacing[0]], "SeriesInstanceUID": uid}
        name = f"{9 - z if is_reversed else z}.dcm"
        write_slice(folder / name, volume[:, :, z].T, [float(f"{value:.9g}") for value in position], **tags)
    scan, image = read_scan(folder), by_itk(folder)
    for index in ((0, 0, 0), (3, 0, 0), (0, 2, 0), (0, 0, 2), (3, 2, 2)):
        left, back, head = image.TransformIndexToPhysicalPoint(index)
        np.testing.assert_allclose(scan.geometry.matrix @ (*index, 1), (-left, -back, head, 1), atol=1e-3)
        assert scan.array[0][index] == image[index]
    for file in folder.iterdir():
        file.unlink()


def test_a_tilted_gantry_shears_the_grid(volume: Volume, tmp_path: Path) -> None:
    for z in range(4):
        write_slice(tmp_path / f"{z}.dcm", volume[:, :, z].T, (0, 0.5 * z, 2 * z), PixelSpacing=[1, 1])
    matrix = read_geometry(tmp_path).matrix
    np.testing.assert_allclose(matrix[:3, 2], (0, -0.5, 2))
    np.testing.assert_allclose(matrix @ (0, 0, 3, 1), (0, -1.5, 6, 1))


@pytest.mark.parametrize("representation", [0, 1])
@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_stored_values(tmp_path: Path, representation: int, photometric: str) -> None:
    pixels = np.array([[0, 1, 700], [2047, 2046, 5]], np.int16) - (1000 if representation else 0)
    tags = {"PixelRepresentation": representation, "PhotometricInterpretation": photometric}
    tags |= {"BitsStored": 12, "HighBit": 11, "RescaleSlope": 2, "RescaleIntercept": -10}
    write_slice(tmp_path / "a" / "1.dcm", pixels, (0, 0, 0), **tags)
    upright = pixels if photometric == "MONOCHROME2" else (-1 if representation else 4095) - pixels
    np.testing.assert_array_equal(read_scan(tmp_path / "a").array[0, :, :, 0], 2 * upright.T - 10)


@pytest.mark.parametrize("is_enhanced", [False, True])
def test_palette_colors_are_refused(volume: Volume, tmp_path: Path, is_enhanced: bool) -> None:
    tags: dict[str, Any] = {"PhotometricInterpretation": "PALETTE COLOR"}
    if is_enhanced:
        write_enhanced(tmp_path / "case" / "a.dcm", volume, (1, 1, 1), **tags)
    else:
        series(tmp_path / "case", volume, **tags)
    refused(tmp_path / "case", Code.SCAN_UNSUPPORTED, "palette")


def test_mosaics_are_refused(volume: Volume, tmp_path: Path) -> None:
    series(tmp_path / "case", volume[:, :, :1], Modality="MR", ImageType=["ORIGINAL", "PRIMARY", "DIFFUSION", "MOSAIC"])
    refused(tmp_path / "case", Code.SCAN_UNSUPPORTED, "mosaic")


def test_each_slice_has_its_own_scale(volume: Volume, tmp_path: Path) -> None:
    for z in range(3):
        write_slice(tmp_path / f"{z}.dcm", volume[:, :, z].T, (0, 0, z), RescaleSlope=z + 1)
    np.testing.assert_array_equal(read_scan(tmp_path).array[0], volume[:, :, :3] * np.array([1, 2, 3]))


def test_compressed_slices(volume: Volume, tmp_path: Path) -> None:
    folder = series(tmp_path / "case", volume)
    for file in folder.iterdir():
        one = pydicom.dcmread(file)
        one.compress(RLELossless)
        one.save_as(file)
    np.testing.assert_array_equal(read_scan(folder).array[0], volume)


def lossless_jpeg(path: Path, pixels: Volume, **tags: Any) -> pydicom.Dataset:
    """Write a slice as lossless JPEG, which pydicom cannot decode, and return its header."""
    plain = path.with_name("plain")
    write_slice(plain, pixels, (1, 2, 3), SOPClassUID="1.2.840.10008.5.1.4.1.1.2")
    writer = SimpleITK.ImageFileWriter()
    writer.SetImageIO("GDCMImageIO")
    writer.SetCompressor("JPEG")
    writer.UseCompressionOn()
    writer.KeepOriginalImageUIDOn()
    writer.SetFileName(str(path))
    writer.Execute(SimpleITK.Cast(SimpleITK.ReadImage(str(plain), imageIO="GDCMImageIO"), SimpleITK.sitkInt16))
    plain.unlink()
    written = pydicom.dcmread(path)
    for tag, value in tags.items():
        setattr(written, tag, value)
    written.save_as(path)
    assert written.file_meta.TransferSyntaxUID.is_compressed
    with pytest.raises(RuntimeError):
        written.pixel_array  # noqa: B018
    return written


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_simpleitk_decodes_compressed_slices(tmp_path: Path, photometric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.arange(256, dtype=np.int16).reshape(16, 16)
    (tmp_path / "a").mkdir()
    tags = {"PhotometricInterpretation": photometric, "RescaleSlope": 2, "RescaleIntercept": 5}
    lossless_jpeg(tmp_path / "a" / "1.dcm", pixels, **tags)
    upright = pixels if photometric == "MONOCHROME2" else -1 - pixels
    np.testing.assert_array_equal(read_scan(tmp_path / "a").array.squeeze(), 2 * upright.T + 5)
    np.testing.assert_array_equal(
        read_scan(zipped(tmp_path / "a", tmp_path / "a.zip")).array.squeeze(), 2 * upright.T + 5
    )
    monkeypatch.setattr(dicom_pixels, "_decode_with_itk", lambda where, header, tags: None)
    refused(tmp_path / "a", Code.PACKAGE_MISSING, "JPEG Lossless")
    refused(tmp_path / "a", Code.PACKAGE_MISSING, "pip install SimpleITK")


def test_simpleitk_decodes_compressed_frames(tmp_path: Path) -> None:
    volume = np.arange(512, dtype=np.int16).reshape(16, 16, 2)
    headers = [lossless_jpeg(tmp_path / "1.dcm", volume[:, :, z].T) for z in (1, 0)]
    frames = [get_frame(header.PixelData, 0, number_of_frames=1) for header in headers]
    path = tmp_path / "a.dcm"
    write_enhanced(path, volume, (1, 1, 1))
    written = pydicom.dcmread(path)
    written.file_meta.TransferSyntaxUID = headers[0].file_meta.TransferSyntaxUID
    written.PixelData = encapsulate(frames)
    written.save_as(path)
    np.testing.assert_array_equal(read_scan(path).array[0], volume)


@pytest.mark.parametrize("name", ["DICOMDIR", "dicomdir", "index.dcm"])
def test_the_index_of_a_disc_is_ignored(volume: Volume, tmp_path: Path, name: str) -> None:
    index = pydicom.Dataset()
    index.file_meta = pydicom.dataset.FileMetaDataset()
    index.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    index.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    index.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    index.FileSetID, index.DirectoryRecordSequence = "DISC", []
    series(tmp_path / "disc" / "a", volume)
    pydicom.dcmwrite(tmp_path / "disc" / name, index, enforce_file_format=True)
    np.testing.assert_array_equal(read_scan(tmp_path / "disc").array[0], volume)
    assert read_scan(zipped(tmp_path / "disc", tmp_path / "disc.zip")).array.shape == (1, *volume.shape)
    if name.upper() == "DICOMDIR":
        series(tmp_path / "disc" / "b", volume)
        cases, failures = scan_cases(tmp_path / "disc", 1)
        assert len(cases) == 2 and not failures


def test_a_localizer_is_skipped_with_a_warning(
    volume: Volume, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    series(tmp_path / "case", volume, SeriesNumber=4)
    series(tmp_path / "case" / "scout", volume[:, :, :1], SeriesNumber=1, **PERSON)
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(read_scan(tmp_path / "case").array[0], volume)
    assert "skipped series 1 (CT, 1 slice, first file 001.dcm)" in caplog.text
    assert not any(secret in caplog.text for secret in SECRETS)


def test_a_localizer_is_recognized_by_its_image_type(volume: Volume, tmp_path: Path) -> None:
    folder = series(tmp_path / "case", volume[:, :, :3])
    series(folder / "scout", volume[:, :, 2:5], ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"])
    np.testing.assert_array_equal(read_scan(folder).array[0], volume[:, :, :3])


def test_two_volumes_are_refused(volume: Volume, tmp_path: Path) -> None:
    series(tmp_path / "case" / "a", volume, SeriesNumber=2)
    series(tmp_path / "case" / "b", volume[:, :, :6], SeriesNumber=3, Modality="MR")
    series(tmp_path / "case" / "c", volume[:, :, :1])
    text = refused(tmp_path / "case", Code.DICOM_SERIES, "2 series")
    assert "series 2 (CT, 8 slices" in text and "series 3 (MR, 6 slices" in text


def test_two_patients_are_refused(volume: Volume, tmp_path: Path) -> None:
    series(tmp_path / "case", volume)
    series(tmp_path / "case" / "b", volume[:, :, :1], PatientID="other")
    refused(tmp_path / "case", Code.DICOM_SERIES, "slices of 2 patients")


@pytest.mark.parametrize(
    ("others", "people"),
    [
        ({"PatientID": ""}, 1),
        ({"PatientName": ""}, 1),
        ({"PatientID": "", "PatientName": ""}, 1),
        # the same patient ID with another spelling of the name
        ({"PatientName": "Doe^J"}, 1),
        ({"PatientID": "", "PatientName": "Doe^J"}, 2),
        ({"PatientID": "67890", "PatientName": ""}, 2),
        ({"PatientID": "67890"}, 2),
    ],
)
def test_empty_patient_tags_are_not_another_patient(
    volume: Volume, tmp_path: Path, others: dict[str, str], people: int
) -> None:
    uid = generate_uid()
    for z in range(4):
        tags = others if z == 2 else {}
        write_slice(tmp_path / f"{z}.dcm", volume[:, :, z].T, (0, 0, z), SeriesInstanceUID=uid, **tags)
    if people == 1:
        np.testing.assert_array_equal(read_scan(tmp_path).array[0], volume[:, :, :4])
    else:
        refused(tmp_path, Code.DICOM_SERIES, "slices of 2 patients")


def test_patients_without_id_are_distinguished_by_name(volume: Volume, tmp_path: Path) -> None:
    for z, name in enumerate(("Roe^Ann", "", "Roe^Ann^", "Doe^Jane")):
        write_slice(tmp_path / f"{z}.dcm", volume[:, :, z].T, (0, 0, z), PatientID=None, PatientName=name)
    refused(tmp_path, Code.DICOM_SERIES, "slices of 2 patients")
    (tmp_path / "3.dcm").unlink()
    np.testing.assert_array_equal(read_scan(tmp_path).array[0], volume[:, :, :3])


def test_files_without_images_are_skipped(volume: Volume, tmp_path: Path) -> None:
    folder = series(tmp_path / "case", volume)
    write_slice(folder / "report", volume[:, :, 0].T, None, Modality="SR", SeriesInstanceUID=generate_uid())
    (folder / "readme.txt").write_text("no slice")
    (folder / ".hidden.dcm").write_bytes(b"nothing")
    np.testing.assert_array_equal(read_scan(folder).array[0], volume)


def test_dicom_files_without_suffix(volume: Volume, tmp_path: Path) -> None:
    folder = series(tmp_path / "case" / "study" / "series", volume)
    for file in sorted(folder.iterdir()):
        file.rename(folder / f"IM{file.stem}")
    assert is_scan(tmp_path / "case") and not is_scan(tmp_path / "none")
    np.testing.assert_array_equal(read_scan(tmp_path / "case").array[0], volume)


@pytest.mark.parametrize("content", ["meta information", "explicit", "implicit"])
def test_old_files_without_preamble(volume: Volume, tmp_path: Path, content: str) -> None:
    folder = series(tmp_path / "case", volume)
    for file in folder.iterdir():
        slice_, bare = pydicom.dcmread(file), BytesIO()
        if content == "meta information":
            bare.write(file.read_bytes()[132:])
        else:
            syntax = ImplicitVRLittleEndian if content == "implicit" else ExplicitVRLittleEndian
            slice_.file_meta.TransferSyntaxUID = syntax
            pydicom.dcmwrite(bare, slice_)
            start = bare.getvalue().index(b"\x08\x00" + b"\x60\x00")  # the first tag of the header, Modality
            bare = BytesIO(bare.getvalue()[start:])
        file.write_bytes(bare.getvalue())
    np.testing.assert_array_equal(read_scan(folder).array[0], volume)


def test_a_damaged_slice_is_not_skipped(volume: Volume, tmp_path: Path) -> None:
    folder = series(tmp_path / "case", volume)
    (folder / "001.dcm").write_bytes(bytes(500))
    with user_error(Code.NOT_A_SCAN, "001.dcm", "not a DICOM file"):
        read_scan(folder)


def test_an_invalid_value_is_not_quoted(volume: Volume, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = series(tmp_path / "case", volume, **PERSON)
    for file in folder.iterdir():
        content = file.read_bytes()
        assert content.count(b"0.8\\0.7 ") == 1
        file.write_bytes(content.replace(b"0.8\\0.7 ", b"Doe\\0.7 "))
    refused(folder, Code.SCAN_HEADER, "is not 2 numbers")
    assert "Doe" not in "".join(capfd.readouterr())


def test_missing_slices_are_counted(volume: Volume, tmp_path: Path) -> None:
    folder = series(tmp_path / "case", volume)
    for name in ("003.dcm", "004.dcm"):
        (folder / name).unlink()
    assert "002.dcm" in refused(folder, Code.DICOM_SERIES, "2 slices are missing before this slice: 7.50 mm")


def test_inconsistent_slices_are_refused(volume: Volume, tmp_path: Path) -> None:
    folder = series(tmp_path / "a", volume)
    tilted = (1.0, 0.0, 0.0, 0.0, 0.9, 0.436)
    one = pydicom.dcmread(folder / "003.dcm")
    one.ImageOrientationPatient = list(tilted)
    one.save_as(folder / "003.dcm")
    refused(folder, Code.DICOM_SERIES, "tilted")
    folder = series(tmp_path / "b", volume, ImageOrientationPatient=[1, 0, 0, 1, 0, 0])
    refused(folder, Code.SCAN_HEADER, "orthogonal")
    folder, uid = tmp_path / "c", generate_uid()
    for time in range(2):
        for z in range(3):
            write_slice(folder / f"{time}{z}.dcm", volume[:, :, z].T, (0, 0, z), SeriesInstanceUID=uid)
    refused(folder, Code.DICOM_SERIES, "6 slices at 3 positions")
    for z, height in enumerate((0, 1, 2, 3, 4.4, 5.8, 7.2, 8.6)):
        write_slice(tmp_path / "d" / f"{z}.dcm", volume[:, :, z].T, (0, 0, height), SeriesInstanceUID=uid)
    refused(tmp_path / "d", Code.DICOM_SERIES, "steps of 1.23 mm")
    folder = series(tmp_path / "e", volume, SamplesPerPixel=3)
    refused(folder, Code.SCAN_DAMAGED, "pixels")
    folder = series(tmp_path / "f", volume, ModalityLUTSequence=[pydicom.Dataset()])
    refused(folder, Code.SCAN_UNSUPPORTED, "table (ModalityLUTSequence)")


def test_a_radiograph_is_2d(tmp_path: Path) -> None:
    pixels = np.arange(12, dtype=np.int16).reshape(3, 4)
    write_slice(tmp_path / "a.dcm", pixels, None, PixelSpacing=None, ImagerPixelSpacing=[0.2, 0.1], Modality="DX")
    scan = read_scan(tmp_path / "a.dcm")
    np.testing.assert_array_equal(scan.array, pixels.T[None])
    assert scan.geometry.spacing == (0.1, 0.2) and axis_codes(scan.geometry) == "LP"
    assert read_geometry(tmp_path / "a.dcm") == scan.geometry


def test_label_maps_are_not_read_from_dicom(volume: Volume, tmp_path: Path) -> None:
    with user_error(Code.SCAN_UNSUPPORTED, keyword="NIfTI, NRRD or MHA"):
        read_label(series(tmp_path / "case", volume))


def test_cases_to_predict(volume: Volume, tmp_path: Path) -> None:
    def found(path: Path) -> dict[str, Path]:
        cases, failures = scan_cases(path, 1)
        assert not failures
        return {case.name: case.images[0] for case in cases}

    one, two = series(tmp_path / "all" / "one", volume), series(tmp_path / "all" / "two" / "deep", volume)
    three = zipped(one, tmp_path / "all" / "three.zip")
    write_enhanced(tmp_path / "all" / "four.dcm", volume, (1, 1, 1))
    write_enhanced(tmp_path / "all" / "five.dcm", volume, (1, 1, 1))
    expected = {"one": one, "two": two.parent, "three": three}
    assert found(tmp_path / "all") == expected | {name: tmp_path / "all" / f"{name}.dcm" for name in ("four", "five")}
    assert found(one) == {"one": one}
    assert found(three) == {"three": three}
    assert found(tmp_path / "all" / "five.dcm") == {"five": tmp_path / "all" / "five.dcm"}


def dataset(root: Path, volume: Volume) -> Path:
    """Write a data set in several formats, with a patient's name in the DICOM headers."""
    for name in "ab":
        series(root / "imagesTr" / name, volume, **PERSON)
        label = np.zeros(volume.shape, np.uint8)
        label[1:3, 1:2, 2:5] = 1
        write_label(root / "labelsTr" / f"{name}.nii.gz", label, read_geometry(root / "imagesTr" / name))
    SimpleITK.WriteImage(by_itk(root / "imagesTr" / "a"), str(root / "imagesTr" / "c.nrrd"))
    label_image = SimpleITK.ReadImage(str(root / "labelsTr" / "a.nii.gz"))
    SimpleITK.WriteImage(label_image, str(root / "labelsTr" / "c.mha"))
    (root / "imagesUn").mkdir()
    zipped(series(root.parent / "u", volume, **PERSON), root / "imagesUn" / "u.zip")
    return root


def test_a_data_set_of_several_formats(volume: Volume, tmp_path: Path) -> None:
    found = read_layout(dataset(tmp_path / "data", volume))
    assert [(case.name, case.split) for case in found.cases] == [
        ("a", "labeled"),
        ("b", "labeled"),
        ("c", "labeled"),
        ("u", "unlabeled"),
    ]
    assert found.problems == () and found.ignored == ()
    for case in found.of("labeled"):
        assert found.reader.label(case).array.sum() == 6


def test_no_patient_data_is_kept(
    volume: Volume, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    data, store = dataset(tmp_path / "data", volume), tmp_path / "store"
    with caplog.at_level(logging.DEBUG):
        api.prepare(data, store, recipe="default-3d/bcp")
        findings = api.check(data, out=tmp_path / "check.html")
        facts = api.info(data)
    (data / "imagesTr" / "a" / "004.dcm").unlink()
    broken = api.check(data)
    assert any("a slice is missing" in finding.what for finding in broken)
    texts = [caplog.text, *capfd.readouterr(), json.dumps(facts), repr(list(findings)), repr(list(broken))]
    texts += [path.name for path in store.rglob("*")]
    texts += [
        path.read_bytes().decode("latin-1") for path in (*store.rglob("*"), tmp_path / "check.html") if path.is_file()
    ]
    assert len(texts) > 10
    assert not [secret for secret in SECRETS if any(secret in text for text in texts)]


def test_a_changed_slice_is_detected(volume: Volume, tmp_path: Path) -> None:
    data, store = dataset(tmp_path / "data", volume), tmp_path / "store"
    folder = data / "imagesTr" / "a"
    api.prepare(data, store, recipe="default-3d/bcp")
    assert sorted(json.loads((store / "cases" / "a.json").read_text())["case"]["sources"]) == [
        "imagesTr/a",
        "labelsTr/a.nii.gz",
    ]
    before = source_of(folder)
    (folder / "001.dcm").touch()
    assert unchanged(folder, before)
    write_slice(folder / "001.dcm", volume[:, :, 0].T, (-10, -20, 5 + 7 * 2.5), PixelSpacing=[0.8, 0.7])
    assert not unchanged(folder, before)
    (folder / "001.dcm").unlink()
    assert not unchanged(folder, before)
    assert not unchanged(tmp_path / "none", before)


def test_a_prediction_has_the_grid_of_its_series(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans", 3, labeled=2, unlabeled=2, test=0)
    few = ["stages.0.steps=1", "stages.1.steps=1"]
    api.train(tiny.tiny_recipe(3), scans, tmp_path / "run", overrides=few, device="cpu")
    volume = np.random.default_rng(1).integers(0, 500, (16, 17, 18)).astype(np.int16)
    folder = series(tmp_path / "series", volume, (1.0, 1.0, 1.5), **PERSON)
    packed = zipped(folder, tmp_path / "packed.zip")
    for path, name in ((folder, "series"), (packed, "packed")):
        (case,) = api.predict(tmp_path / "run", path, tmp_path / "out", device="cpu").cases
        assert case.case == name
        label = read_label(tmp_path / "out" / f"{name}.nii.gz")
        np.testing.assert_allclose(label.geometry.matrix, read_geometry(folder).matrix, atol=1e-5)
    texts = [path.read_bytes().decode("latin-1") for path in (tmp_path / "out").iterdir()]
    assert not [secret for secret in SECRETS if any(secret in text for text in texts)]
