"""Scans of every format with planted texts in all fields that may name a person."""

import gzip
import json
import struct
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any

import nibabel
import numpy as np
from dicom_data import dicom_slice, write_dicom
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from small_data import SIDE, write_data

Voxels = NDArray[Any]
SLICES = 4
BELOW = "names inside of a DICOM folder"
DICOM_TEXTS = [
    "PatientName",
    "PatientID",
    "OtherPatientIDs",
    "IssuerOfPatientID",
    "PatientBirthName",
    "PatientMotherBirthName",
    "PatientAddress",
    "PatientTelephoneNumbers",
    "PatientComments",
    "AdditionalPatientHistory",
    "Occupation",
    "EthnicGroup",
    "MedicalRecordLocator",
    "MilitaryRank",
    "CountryOfResidence",
    "RegionOfResidence",
    "AccessionNumber",
    "StudyID",
    "StudyDescription",
    "SeriesDescription",
    "ProtocolName",
    "ReferringPhysicianName",
    "ReferringPhysicianAddress",
    "ReferringPhysicianTelephoneNumbers",
    "PerformingPhysicianName",
    "NameOfPhysiciansReadingStudy",
    "PhysiciansOfRecord",
    "RequestingPhysician",
    "OperatorsName",
    "InstitutionName",
    "InstitutionAddress",
    "InstitutionalDepartmentName",
    "StationName",
    "DeviceSerialNumber",
    "ManufacturerModelName",
    "ImageComments",
    "RequestedProcedureDescription",
    "RequestedProcedureID",
    "PerformedProcedureStepDescription",
    "PerformedProcedureStepID",
    "AdmissionID",
    "CurrentPatientLocation",
    "VisitComments",
    "ContentCreatorName",
    "DerivationDescription",
    "AcquisitionProtocolDescription",
    "DetectorID",
    "GantryID",
]
DICOM_UIDS = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "FrameOfReferenceUID", "DeviceUID")
SEQUENCES = ("RequestAttributesSequence", "ReferencedStudySequence", "PersonIdentificationCodeSequence")
NIFTI_FIELDS = {"descrip": 80, "aux_file": 24, "intent_name": 16, "db_name": 18, "data_type": 10}
TIFF_TEXTS = {269: "document", 270: "description", 271: "make", 272: "model", 305: "software", 315: "artist"}
TIFF_TEXTS |= {316: "computer", 33432: "copyright", 700: "xmp", 306: "date"}


class Vault:
    """Random texts by the place in which they are planted. ``places`` are the places to use, by default all."""

    def __init__(self, random: Random, places: Collection[str] | None = None) -> None:
        self._random, self._places = random, places
        self.secrets: dict[str, str] = {}

    def text(self, place: str, length: int = 14) -> str:
        """Return a text to plant, or a harmless text if this place is not used."""
        return self._plant(place, "QZ" + "".join(self._random.choices("BCDFGHJKLMNPRSTVWX", k=length - 2)), "none")

    def uid(self, place: str) -> str:
        """Return a UID to plant."""
        return self._plant(place, f"1.2.826.{self._random.randrange(10**17, 10**18)}", "1.2.3")

    def date(self, place: str) -> str:
        """Return a date to plant."""
        year, month, day = (self._random.randrange(*limits) for limits in ((1900, 1999), (1, 12), (1, 28)))
        return self._plant(place, f"{year}{month:02d}{day:02d}", "20000101")

    def _plant(self, place: str, secret: str, other: str) -> str:
        if self._places is not None and place not in self._places:
            return other
        return self.secrets.setdefault(place, secret)


def plant_dicom(vault: Vault, folder: Path, *, packed: bool) -> Path:
    """Write a series as a folder, or as a zip. Every slice has the same planted tags."""
    kind = "zip" if packed else "dicom"
    texts = {name: vault.text(f"{kind} {name}") for name in DICOM_TEXTS}
    uids = {name: vault.uid(f"{kind} {name}") for name in DICOM_UIDS}
    others = {
        name: vault.text(f"{kind} {name}") for name in (*SEQUENCES, "private tag", "private sequence", "preamble")
    }
    birth = vault.date(f"{kind} PatientBirthDate")
    title = vault.text(f"{kind} SourceApplicationEntityTitle")

    def plant(one: Dataset) -> None:
        for name, text in (*texts.items(), *uids.items()):
            setattr(one, name, text)
        one.PatientBirthDate = birth
        for name in SEQUENCES:
            inner, outer = Dataset(), Dataset()
            inner.ImageComments, outer.ReferencedSeriesSequence = others[name], [inner]
            setattr(one, name, [outer])
        block, nested = one.private_block(0x0011, "CAMPAIGN", create=True), Dataset()
        nested.PatientComments = others["private sequence"]
        block.add_new(1, "LO", others["private tag"])
        block.add_new(2, "SQ", [nested])
        one.file_meta.SourceApplicationEntityTitle = title
        one.preamble = others["preamble"].encode().ljust(128, b"\0")

    below = folder if packed else folder / vault.text(f"{BELOW}, folder")
    file = "" if packed else vault.text(f"{BELOW}, file")
    paths = [write_dicom(below / f"{file}{z}.dcm", dicom_slice(z), plant) for z in range(SLICES)]
    if not packed:
        return folder
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w") as archive:
        archive.comment = vault.text("zip comment").encode()
        entry = vault.text("zip folder")
        for path in paths:
            archive.write(path, f"{entry}/{path.name}")
            path.unlink()
    folder.rmdir()
    return folder.with_suffix(".zip")


def plant_nifti(vault: Vault, path: Path, array: Voxels, kind: str, *, is_lps: bool = False) -> None:
    """Write a compressed NIfTI file with planted header fields, extensions, gaps and a planted name inside of gzip."""
    header = nibabel.Nifti1Header(endianness="<")
    header.set_data_shape(array.shape)
    header.set_data_dtype(array.dtype)
    header.set_sform(np.diag([-1, -1, 1, 1]) if is_lps else np.eye(4), code=1)
    for field, length in NIFTI_FIELDS.items():
        header[field] = vault.text(f"{kind} {field}", length=min(length, 14)).encode()
    extensions = b""
    for code in (4, 6, 32):
        text = vault.text(f"{kind} extension {code}").encode()
        extensions += struct.pack("<II", 32, code) + text.ljust(24, b"\0")
    gap = vault.text(f"{kind} gap").encode().ljust(32, b"\0")
    header["vox_offset"] = 352 + len(extensions) + len(gap)
    content = bytes(header.binaryblock) + b"\1\0\0\0" + extensions + gap + array.tobytes(order="F")
    with path.open("wb") as file:
        name = vault.text(f"{kind} name inside of gzip")
        with gzip.GzipFile(name, "wb", fileobj=file, mtime=0) as stream:
            stream.write(content + vault.text(f"{kind} after the voxels").encode())


def plant_nrrd(vault: Vault, path: Path, array: Voxels) -> None:
    """Write an NRRD file with planted comments and key-value pairs."""
    sizes = " ".join(map(str, array.shape))
    lines = [
        "NRRD0005",
        f"# {vault.text('nrrd comment')}",
        "type: float",
        f"dimension: {array.ndim}",
        f"sizes: {sizes}",
    ]
    lines += [
        "endian: little",
        "encoding: raw",
        "space: left-posterior-superior",
        f"content: {vault.text('nrrd content')}",
    ]
    lines += ["space directions: (1,0,0) (0,1,0) (0,0,1)", "space origin: (0,0,0)"]
    lines += [f"PatientName:={vault.text('nrrd key')}", f"{vault.text('nrrd name of a key')}:=x", "", ""]
    path.write_bytes("\n".join(lines).encode() + array.astype("<f4").tobytes(order="F"))


def plant_mha(vault: Vault, path: Path, array: Voxels) -> None:
    """Write an MHA file with planted fields."""
    sizes = " ".join(map(str, array.shape))
    lines = ["ObjectType = Image", f"NDims = {array.ndim}", f"Comment = {vault.text('mha comment')}"]
    lines += [f"Name = {vault.text('mha name')}", f"PatientName = {vault.text('mha field')}", "BinaryData = True"]
    lines += ["TransformMatrix = 1 0 0 0 1 0 0 0 1", "ElementSpacing = 1 1 1", f"DimSize = {sizes}"]
    lines += ["ElementType = MET_FLOAT", "ElementDataFile = LOCAL", ""]
    path.write_bytes("\n".join(lines).encode() + array.astype("<f4").tobytes(order="F"))


def plant_png(vault: Vault, path: Path, array: Voxels) -> None:
    """Write a PNG file with planted text chunks."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    def text(place: str) -> bytes:
        return vault.text(f"png {place}").encode()

    rows = b"".join(b"\0" + bytes(row) for row in array.astype(np.uint8))
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0))
    content += chunk(b"tEXt", b"Author\0" + text("text")) + chunk(
        b"zTXt", b"a\0\0" + zlib.compress(text("packed text"))
    )
    content += chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + text("international text"))
    exif = b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHII", 270, 2, 15, 26) + bytes(4) + text("exif") + b"\0"
    content += chunk(b"eXIf", exif) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(content + text("after the end"))


def plant_tiff(vault: Vault, path: Path, array: Voxels) -> None:
    """Write a TIFF file with planted tags."""
    texts = {tag: vault.text(f"tiff {name}").encode() + b"\0" for tag, name in TIFF_TEXTS.items()}
    pixels = array.astype(np.uint8).tobytes()
    body, entries = pixels, {256: (4, 1, SIDE), 257: (4, 1, SIDE), 258: (3, 1, 8), 259: (3, 1, 1), 262: (3, 1, 1)}
    entries |= {273: (4, 1, 8), 277: (3, 1, 1), 278: (4, 1, SIDE), 279: (4, 1, len(pixels))}
    for tag, text in texts.items():
        entries[tag] = (2, len(text), 8 + len(body))
        body += text
    body += bytes(len(body) % 2)
    directory = b"".join(struct.pack("<HHII", tag, *entry) for tag, entry in sorted(entries.items()))
    end = struct.pack("<H", len(entries)) + directory + bytes(4)
    path.write_bytes(struct.pack("<2sHI", b"II", 42, 8 + len(body)) + body + end)


def plant_description(vault: Vault, data: Path) -> None:
    """Add planted texts to dataset.json."""
    path = data / "dataset.json"
    content = json.loads(path.read_text())
    keys = ("name", "description", "reference", "licence", "release")
    path.write_text(json.dumps(content | {key: vault.text(f"dataset.json {key}") for key in keys}))


def write_volumes(vault: Vault, data: Path) -> Path:
    """Write a data set of volumes in five formats."""
    write_data(data, labeled=("a", "b"), unlabeled=(), test=("e",), slices=SLICES)
    rng = np.random.default_rng(0)
    image = rng.normal(size=(SIDE, SIDE, SLICES)).astype(np.float32)
    label = np.zeros((SIDE, SIDE, SLICES), np.uint8)
    label[4:9, 4:9] = 1
    (data / "imagesUn").mkdir()
    plant_dicom(vault, data / "imagesUn" / "c_0000", packed=False)
    plant_nifti(vault, data / "imagesTr" / "n_0000.nii.gz", image, "nifti")
    plant_nifti(vault, data / "labelsTr" / "n.nii.gz", label, "nifti label")
    plant_nrrd(vault, data / "imagesUn" / "d_0000.nrrd", image)
    plant_mha(vault, data / "imagesUn" / "m_0000.mha", image)
    plant_description(vault, data)
    plant_dicom(vault, data / "imagesTs" / "z_0000", packed=True)
    plant_nifti(vault, data / "labelsTs" / "z.nii.gz", label, "nifti reference", is_lps=True)
    return data


def write_pictures(vault: Vault, data: Path) -> Path:
    """Write a data set of pictures in two formats."""
    write_data(data, labeled=(), unlabeled=(), test=())
    rng = np.random.default_rng(0)
    label = np.zeros((SIDE, SIDE))
    label[4:9, 4:9] = 1
    for images, labels, case in (("imagesTr", "labelsTr", "a"), ("imagesUn", None, "c"), ("imagesTs", "labelsTs", "e")):
        for suffix, plant in (("png", plant_png), ("tif", plant_tiff)):
            (data / images).mkdir(exist_ok=True)
            plant(vault, data / images / f"{case}{suffix}_0000.{suffix}", rng.integers(0, 200, (SIDE, SIDE)))
            if labels is not None:
                (data / labels).mkdir(exist_ok=True)
                plant(vault, data / labels / f"{case}{suffix}.{suffix}", label)
    return data
