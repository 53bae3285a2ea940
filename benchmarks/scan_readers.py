"""Time to read scans of 100 kB and 20 MB: NRRD with and without SimpleITK, RLE DICOM in this and in a child process.

Run ``python benchmarks/scan_readers.py``. Each time is the fastest of five runs.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pydicom
import SimpleITK
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, RLELossless

from graftseg.data.formats import decoder
from graftseg.data.formats.dicom_pixels import decoded
from graftseg.data.formats.itk import read_itk

SHAPES = {"100 kB": (3, 128, 128), "20 MB": (40, 512, 512)}


def seconds(function: Callable[[], object]) -> float:
    """Return the time of the fastest of five calls."""
    times = []
    for _ in range(5):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return min(times)


def write_rle(path: Path, voxels: np.ndarray) -> None:
    """Write all slices as frames of one RLE file."""
    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, CTImageStorage
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    one = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    one.NumberOfFrames, one.Rows, one.Columns = voxels.shape
    one.SamplesPerPixel, one.PhotometricInterpretation, one.PixelRepresentation = 1, "MONOCHROME2", 1
    one.BitsAllocated, one.BitsStored, one.HighBit = 16, 16, 15
    one.PixelData = voxels.tobytes()
    one.compress(RLELossless, generate_instance_uid=False)
    one.save_as(path, enforce_file_format=True)


def report(size: str, what: str, usual: float, new: float) -> None:
    """Print two times and their ratio."""
    print(f"{size:7} {what:42} {1e3 * usual:8.1f} ms {1e3 * new:8.1f} ms   ratio {new / usual:.2f}", flush=True)


def main() -> None:
    """Measure all readers."""
    with TemporaryDirectory() as folder:
        for size, shape in SHAPES.items():
            voxels = np.random.default_rng(0).normal(0, 3, shape).astype(np.int16)
            for compressed, kind in ((False, "raw"), (True, "gzip")):
                path = Path(folder) / f"{kind}.nrrd"
                SimpleITK.WriteImage(SimpleITK.GetImageFromArray(voxels), str(path), compressed)
                usual = seconds(lambda path=path: SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(path))))
                report(size, f"NRRD {kind}: SimpleITK, own reader", usual, seconds(lambda path=path: read_itk(path)))
            path = Path(folder) / "rle.dcm"
            write_rle(path, voxels)
            usual = seconds(lambda path=path: pydicom.dcmread(path).pixel_array)
            start = perf_counter()
            decoded(path, pydicom.dcmread(path))
            first = perf_counter() - start
            child = seconds(lambda path=path: decoded(path, pydicom.dcmread(path)))
            report(size, "DICOM RLE: in this process, in a child", usual, child)
            report(size, "DICOM RLE: the same with start of the child", usual, first)
            decoder._child.stop()


if __name__ == "__main__":
    main()
