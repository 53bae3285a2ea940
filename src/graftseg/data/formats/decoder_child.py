"""Child process that decodes compressed DICOM and TIFF pixels. A crash does not end its parent.

``decoder`` starts the process. A request is a line of JSON and the bytes of the pixels. A reply is a line of JSON with
shape and type and the bytes of the array, or a line with an error. The process ends when its input ends. It imports no
other module of this project, so that it starts fast and needs little memory.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

SPARE_BYTES = 512 * 2**20  # memory for a request in addition to a few times the size of the decoded pixels
COPIES = 3  # arrays of the size of the decoded pixels that decoders may hold at once


def main() -> None:
    """Answer requests until the input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    # text that a package prints must not mix with the replies
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies.write(b"ready\n")
    replies.flush()
    while line := sys.stdin.buffer.readline():
        _answer(json.loads(line), sys.stdin.buffer, replies)


def _answer(request: dict[str, Any], source: BinaryIO, replies: BufferedWriter) -> None:
    content = source.read(request["length"])
    array: NDArray[Any] = np.empty(0)
    try:
        decode = _decoder(request["decoder"])
        _limit(request["bytes"], request["seconds"])
        array = np.ascontiguousarray(decode(request, content))
        reply = {"shape": array.shape, "dtype": array.dtype.str}
    except Exception as error:
        reply = {"error": str(error)[:1000], "kind": type(error).__name__}
    _limit(None, 0)
    replies.write(json.dumps(reply).encode() + b"\n")
    replies.write(array.reshape(-1).view(np.uint8).data)
    replies.flush()


def _limit(size: int | None, seconds: int) -> None:
    """Limit memory and time of a request, or remove the limits (None and 0), as far as the system supports it."""
    if hasattr(signal, "alarm"):
        # without a handler, the alarm ends the process even inside a decoder
        signal.alarm(seconds)
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = hard if size is None else pages * resource.getpagesize() + COPIES * size + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _decoder(name: str) -> Callable[[dict[str, Any], bytes], NDArray[Any]]:
    """Import a package, and return a function that decodes the pixels of a request."""
    if name == "gdcm":
        import SimpleITK

        SimpleITK.ProcessObject.SetGlobalWarningDisplay(False)
        SimpleITK.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
        read = partial(SimpleITK.ReadImage, imageIO="GDCMImageIO")
        return lambda request, _: SimpleITK.GetArrayFromImage(read(request["path"]))
    if name == "tifffile":
        import tifffile

        return partial(_with_tifffile, tifffile)
    import pydicom

    pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE
    return partial(_with_pydicom, pydicom)


def _with_tifffile(tifffile: Any, request: dict[str, Any], content: bytes) -> NDArray[Any]:
    with tifffile.TiffFile(request["path"]) as file:
        pixels: NDArray[Any] = file.pages[0].asarray(maxworkers=1)
    return pixels


def _with_pydicom(pydicom: Any, request: dict[str, Any], content: bytes) -> NDArray[Any]:
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = request["syntax"]
    for tag, value in request["tags"].items():
        setattr(dataset, tag, value)
    dataset.PixelData = content
    dataset["PixelData"].VR = "OB"
    pixels: NDArray[Any] = dataset.pixel_array
    return pixels


if __name__ == "__main__":
    main()
