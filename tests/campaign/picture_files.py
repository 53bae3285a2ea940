"""Small valid PNG, TIFF and NIfTI files.

``python tests/campaign/picture_files.py FORMAT COUNT`` reads damaged copies of a file of this format and counts what
happens: errors that a user can understand, unchanged voxels, changed voxels, and every other exception.
"""

import gzip
import json
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import tifffile
from numpy.typing import NDArray
from picture_mutants import mutants
from PIL import Image

from graftseg.core.errors import UserError
from graftseg.data.scans import read_geometry, read_label, read_scan

FORMATS = {
    **dict.fromkeys(("png-gray8", "png-gray16", "png-palette-label", "png-rgb"), ".png"),
    **dict.fromkeys(("tiff-raw", "tiff-zlib", "tiff-packbits"), ".tif"),
    "nii": ".nii",
    "nii.gz": ".nii.gz",
}
"""Suffix of the files by format."""
SECONDS, MEBIBYTES = 10, 512
"""Limits of time for each file, and of memory for all files of a format."""


def sample(kind: str) -> bytes:
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
            tifffile.imwrite(stream, ramp.astype(np.uint16), compression="zlib" if kind == "tiff-zlib" else None)
        return stream.getvalue()
    pictures = {
        "png-gray8": lambda: Image.fromarray(ramp.astype(np.uint8)),
        "png-gray16": lambda: Image.fromarray((ramp * 200).astype(np.uint16)),
        "png-rgb": lambda: Image.fromarray(np.stack([ramp, ramp[::-1], ramp[:, ::-1]], -1).astype(np.uint8)),
        "png-palette-label": _palette,
    }
    pictures[kind]().save(stream, "PNG")
    return stream.getvalue()


def read(path: Path, kind: str) -> NDArray[Any]:
    """Read the geometry and the voxels of a file."""
    geometry = read_geometry(path)
    scan = read_label(path) if kind.endswith("label") else read_scan(path)
    if geometry != scan.geometry:
        raise AssertionError("two readings of the geometry differ")
    return scan.array


def _labels() -> NDArray[np.uint8]:
    rows, columns = np.ogrid[:20, :24]
    return np.where((rows - 10) ** 2 + (columns - 12) ** 2 < 40, 1 + rows // 10, 0).astype(np.uint8)


def _palette() -> Image.Image:
    picture = Image.fromarray(_labels()).convert("P")
    picture.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0])
    return picture


def _gzipped(image: nibabel.Nifti1Image) -> bytes:
    return gzip.compress(nibabel.Nifti1Image.to_bytes(image), mtime=0)


def main(kind: str, count: int) -> None:
    """Read damaged copies and print the counts."""
    found: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{FORMATS[kind]}"
        path.write_bytes(sample(kind))
        before = read(path, kind)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number, content in enumerate(mutants(sample(kind), 0, count)):
            path.write_bytes(content)
            flip = " of one bit" if number < count // 2 else ""
            start = time.perf_counter()
            try:
                after = read(path, kind)
                is_same = before.dtype == after.dtype and np.array_equal(before, after)
                found[("unchanged voxels" if is_same else "changed voxels") + flip] += 1
            except UserError as error:
                found[f"error{flip}"] += 1
                found[error.code] += 1
            except Exception:
                found["exception"] += 1
                traceback.print_exc()
            slowest = max(slowest, time.perf_counter() - start)
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    print(json.dumps({"format": kind, **dict(sorted(found.items())), "seconds": round(slowest, 3), "MiB": round(used)}))
    is_bad = found["exception"] or slowest > SECONDS or used > MEBIBYTES
    raise SystemExit(int(bool(is_bad)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
