"""Small NRRD, MetaImage and NIfTI files that ask for much memory or time."""

import gzip
from functools import partial
from pathlib import Path

import nibabel
import numpy as np
from bomb_streams import Make, bzip2_stream, gzip_stream, zlib_stream


def _nrrd(folder: Path, *, sizes: str, encoding: str, content: bytes = bytes(64), more: str = "") -> Path:
    dimension = len(sizes.split())
    text = f"NRRD0004\ntype: uint8\ndimension: {dimension}\nsizes: {sizes}\nencoding: {encoding}\n{more}\n"
    path = folder / "a.nrrd"
    path.write_bytes(text.encode() + content)
    return path


def _mha(folder: Path, *, sizes: str, content: bytes = bytes(64), more: str = "") -> Path:
    count = len(sizes.split())
    text = f"ObjectType = Image\nNDims = {count}\nBinaryData = True\n{more}DimSize = {sizes}\n"
    path = folder / "a.mha"
    path.write_bytes(f"{text}ElementType = MET_UCHAR\nElementDataFile = LOCAL\n".encode() + content)
    return path


def _nifti_head(shape: tuple[int, ...], offset: float = 352.0, kind: str = "Nifti1Header") -> bytes:
    header = getattr(nibabel, kind)(endianness="<")
    header["dim"] = [len(shape), *shape, *[1] * (7 - len(shape))]
    header["datatype"], header["bitpix"], header["vox_offset"] = 2, 8, offset
    header["sform_code"], header["pixdim"] = 1, np.ones(8)
    header["srow_x"][0] = header["srow_y"][1] = header["srow_z"][2] = 1
    return bytes(header.binaryblock) + bytes(4)


def _nifti(folder: Path, *, shape: tuple[int, ...], offset: float = 352.0, kind: str = "Nifti1Header") -> Path:
    path = folder / "a.nii"
    path.write_bytes(_nifti_head(shape, offset, kind) + bytes(4096))
    return path


def _nifti_gz(folder: Path, *, shape: tuple[int, ...], mib: int, offset: float = 352.0) -> Path:
    path = folder / "a.nii.gz"
    path.write_bytes(gzip_stream(mib, _nifti_head(shape, offset)))
    return path


def _nested_gz(folder: Path) -> Path:
    path = folder / "a.nii.gz"
    path.write_bytes(gzip.compress(gzip_stream(2048)))
    return path


HUGE, VAST = "40000 40000 40", "1000000000 1000000000 1000000000"
VOLUMES: dict[str, Make] = {
    "nrrd raw": partial(_nrrd, sizes=HUGE, encoding="raw"),
    "nrrd ascii": partial(_nrrd, sizes=HUGE, encoding="ascii", content=b"1 2 3 4\n" * 9),
    "nrrd hex": partial(_nrrd, sizes=HUGE, encoding="hex", content=b"00" * 99),
    "nrrd gzip, large sizes": partial(_nrrd, sizes=HUGE, encoding="gzip", content=gzip_stream(16)),
    "nrrd gzip, small sizes": partial(_nrrd, sizes="16 16 16", encoding="gzip", content=gzip_stream(2048)),
    "nrrd bzip2, large sizes": partial(_nrrd, sizes=HUGE, encoding="bzip2", content=bzip2_stream(16)),
    "nrrd bzip2, small sizes": partial(_nrrd, sizes="16 16 16", encoding="bzip2", content=bzip2_stream(2048)),
    "nrrd bzip2, all zeros": partial(_nrrd, sizes="2048 2048 512", encoding="bzip2", content=bzip2_stream(2048)),
    "nrrd overflow": partial(_nrrd, sizes=VAST, encoding="raw"),
    "nrrd 16 axes": partial(_nrrd, sizes="9 " * 16, encoding="raw"),
    "nrrd byte skip": partial(_nrrd, sizes="16 16", encoding="gzip", content=gzip_stream(2048), more="byte skip: 9\n"),
    "nrrd line skip": partial(_nrrd, sizes="16 16", encoding="raw", more="line skip: 2000000000\n"),
    "nrrd block": partial(_nrrd, sizes="16 16", encoding="raw", more="block size: 2000000000\n"),
    "nrrd key": partial(_nrrd, sizes="16 16", encoding="raw", content=bytes(256), more=f"k:={'v' * 2**21}\n"),
    "mha raw": partial(_mha, sizes=HUGE),
    "mha ascii": partial(_mha, sizes=HUGE, more="BinaryData = False\n"),
    "mha zlib, large sizes": partial(_mha, sizes=HUGE, content=zlib_stream(16), more="CompressedData = True\n"),
    "mha zlib, small sizes": partial(_mha, sizes="16 16", content=zlib_stream(2048), more="CompressedData = True\n"),
    "mha overflow": partial(_mha, sizes=VAST),
    "mha channels": partial(_mha, sizes="16 16", more="ElementNumberOfChannels = 2000000000\n"),
    "mha 10 axes": partial(_mha, sizes="99 " * 10),
    "mha compressed size": partial(
        _mha, sizes="16 16", content=zlib_stream(16), more="CompressedData = True\nCompressedDataSize = 99999999999\n"
    ),
    "nifti raw": partial(_nifti, shape=(32767, 32767, 32767)),
    "nifti 7 axes": partial(_nifti, shape=(32767,) * 7),
    "nifti-2 overflow": partial(_nifti, shape=(2**40, 2**40, 2**40), offset=544, kind="Nifti2Header"),
    "nifti offset": partial(_nifti, shape=(16, 16), offset=1.6e10),
    "nifti gzip, large sizes": partial(_nifti_gz, shape=(32767, 32767, 16), mib=16),
    "nifti gzip, small sizes": partial(_nifti_gz, shape=(16, 16), mib=3072),
    "nifti gzip, late voxels": partial(_nifti_gz, shape=(16, 16), mib=3072, offset=3e9),
    "nifti gzip in gzip": _nested_gz,
}
