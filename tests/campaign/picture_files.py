"""Small valid PNG, TIFF, JPEG, BMP and NIfTI files, to be damaged."""

import gzip
from io import BytesIO

import nibabel
import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

SUFFIXES = {
    **dict.fromkeys(("png-gray8", "png-gray16", "png-palette-label", "png-rgb"), ".png"),
    **dict.fromkeys(("tiff-raw", "tiff-zlib", "tiff-xz", "tiff-packbits"), ".tif"),
    **dict.fromkeys(("jpeg-gray", "jpeg-progressive"), ".jpg"),
    **dict.fromkeys(("bmp-rgb", "bmp-label"), ".bmp"),
    "nii": ".nii",
    "nii.gz": ".nii.gz",
}
"""Suffix of the files by format."""


def picture(kind: str) -> bytes:
    """Return a small valid file."""
    ramp = np.arange(20 * 24).reshape(20, 24) * 7 % 251
    stream = BytesIO()
    if kind.startswith("nii"):
        image = nibabel.Nifti1Image(np.repeat(ramp[..., None], 5, 2).astype(np.int16), np.diag([1.0, 1, 2, 1]))
        return nibabel.Nifti1Image.to_bytes(image) if kind == "nii" else _gzipped(image)
    if kind.startswith("tiff"):
        if kind == "tiff-packbits":
            Image.fromarray(_labels()).save(stream, "TIFF", compression="packbits")
        else:
            compression = {"tiff-zlib": "zlib", "tiff-xz": "lzma"}.get(kind)
            tifffile.imwrite(stream, ramp.astype(np.uint16), compression=compression)
        return stream.getvalue()
    pictures = {
        "jpeg-gray": lambda: Image.fromarray(ramp.astype(np.uint8)),
        "bmp-label": _palette,
        "png-gray8": lambda: Image.fromarray(ramp.astype(np.uint8)),
        "png-gray16": lambda: Image.fromarray((ramp * 200).astype(np.uint16)),
        "png-rgb": lambda: Image.fromarray(np.stack([ramp, ramp[::-1], ramp[:, ::-1]], -1).astype(np.uint8)),
        "png-palette-label": _palette,
    }
    pictures["jpeg-progressive"] = pictures["bmp-rgb"] = pictures["png-rgb"]
    options = {"progressive": True} if kind == "jpeg-progressive" else {}
    pictures[kind]().save(stream, kind.partition("-")[0].upper(), **options)
    return stream.getvalue()


def _labels() -> NDArray[np.uint8]:
    rows, columns = np.ogrid[:20, :24]
    return np.where((rows - 10) ** 2 + (columns - 12) ** 2 < 40, 1 + rows // 10, 0).astype(np.uint8)


def _palette() -> Image.Image:
    picture = Image.fromarray(_labels()).convert("P")
    picture.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0])
    return picture


def _gzipped(image: nibabel.Nifti1Image) -> bytes:
    return gzip.compress(nibabel.Nifti1Image.to_bytes(image), mtime=0)
