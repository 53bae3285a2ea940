"""The child process that decodes compressed pixels: its death is an error of one file."""

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pydicom
import pytest
import tifffile
from pydicom.uid import DeflatedExplicitVRLittleEndian, RLELossless

from dicom_fakes import write_slice
from graftseg.core.errors import Code
from graftseg.data.formats import decoder, decoder_child, dicom_tags, pictures, tiff_segments
from graftseg.data.scans import read_scan
from memory_limit import limited_memory
from scan_fakes import refused
from user_errors import user_error

PIXELS = np.arange(12, dtype=np.int16).reshape(3, 4)


def rle(path: Path) -> Path:
    write_slice(path, PIXELS, (0, 0, 0))
    one = pydicom.dcmread(path)
    one.compress(RLELossless)
    one.save_as(path)
    return path


def pixels(path: Path) -> list[list[float]]:
    found: list[list[float]] = read_scan(path).array[0, :, :, 0].T.tolist()
    return found


def child_id() -> int:
    process = decoder._child.process
    assert process is not None and process.poll() is None
    return process.pid


def test_one_process_answers_all_requests(tmp_path: Path) -> None:
    path = rle(tmp_path / "a.dcm")
    assert pixels(path) == PIXELS.tolist()
    first, found = child_id(), []
    threads = [threading.Thread(target=lambda: found.append(pixels(path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [PIXELS.tolist()] * 4 and child_id() == first


def test_a_process_that_ended_between_requests_is_restarted(tmp_path: Path) -> None:
    path = rle(tmp_path / "a.dcm")
    assert pixels(path) == PIXELS.tolist()
    first = child_id()
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert pixels(path) == PIXELS.tolist() and child_id() != first


def test_a_crash_during_a_request_is_an_error_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that waits forever on a named pipe is ended by the time limit, or by a signal."""
    path, pipe = rle(tmp_path / "a.dcm"), tmp_path / "pipe"
    os.mkfifo(pipe)
    assert pixels(path) == PIXELS.tolist()
    threading.Timer(0.3, os.kill, (child_id(), signal.SIGSEGV)).start()
    with user_error(Code.SCAN_DAMAGED, "b.dcm", "decoder"):
        decoder.decode(tmp_path / "b.dcm", "gdcm", 100, path=str(pipe))
    monkeypatch.setattr(decoder, "SECONDS", 1)
    with user_error(Code.SCAN_DAMAGED, "b.dcm", "decoder"):
        decoder.decode(tmp_path / "b.dcm", "gdcm", 100, path=str(pipe))
    assert pixels(path) == PIXELS.tolist()


def test_memory_of_the_process_is_limited(tmp_path: Path) -> None:
    one = pydicom.dcmread(rle(tmp_path / "a.dcm"))
    tags = {name: one[name].value for name in ("SamplesPerPixel", "BitsAllocated", "BitsStored", "PixelRepresentation")}
    tags |= {"PhotometricInterpretation": "MONOCHROME2", "Rows": 40000, "Columns": 40000}
    with user_error(Code.SCAN_DAMAGED, "a.dcm", "memory"):
        decoder.decode(tmp_path / "a.dcm", "pydicom", 100, one.PixelData, syntax=RLELossless, tags=tags)


def test_a_fork_has_its_own_process(tmp_path: Path) -> None:
    path = rle(tmp_path / "a.dcm")
    assert pixels(path) == PIXELS.tolist()
    first = child_id()
    if (fork := os.fork()) == 0:
        is_same = pixels(path) == PIXELS.tolist() and child_id() != first
        decoder._child.stop()
        os._exit(0 if is_same else 1)
    assert os.waitpid(fork, 0)[1] == 0
    assert pixels(path) == PIXELS.tolist() and child_id() == first


@pytest.mark.slow
def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    code = f"""if True:
    import os, pathlib
    from graftseg.data.formats import decoder
    from graftseg.data.scans import read_scan
    read_scan(pathlib.Path({str(rle(tmp_path / "a.dcm"))!r}))
    print(decoder._child.process.pid, flush=True)
    os.kill(os.getpid(), 9)
    """
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    status = Path(f"/proc/{int(ended.stdout)}")
    for _ in range(100):
        if not status.exists() or ") Z " in (status / "stat").read_text():
            return
        time.sleep(0.1)
    pytest.fail("the process is still running")


def test_the_process_imports_few_packages() -> None:
    tree = ast.parse(Path(str(decoder_child.__file__)).read_text())
    found = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    found |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in found} - sys.stdlib_module_names == {
        "numpy",
        "pydicom",
        "SimpleITK",
        "tifffile",
    }


def test_decoders_print_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = rle(tmp_path / "a.dcm")
    content = path.read_bytes()
    place = content.rindex(b"\xfe\xff\x00\xe0") + 8
    path.write_bytes(content[:place] + b"\xff" * 12 + content[place + 12 :])
    refused(path, Code.SCAN_DAMAGED)
    assert capfd.readouterr() == ("", "")


def test_a_header_that_claims_more_pixels_than_rle_can_contain_is_refused(tmp_path: Path) -> None:
    path = rle(tmp_path / "a.dcm")
    one = pydicom.dcmread(path)
    one.Rows = one.Columns = 40000
    one.save_as(path)
    with limited_memory():
        refused(path, Code.SCAN_DAMAGED, "RLE")


def test_deflated_content_larger_than_its_header_describes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.dcm"
    write_slice(path, PIXELS, (0, 0, 0))
    one = pydicom.dcmread(path)
    one.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    one.save_as(path)
    assert pixels(path) == PIXELS.tolist()
    one.add_new(0x7FE10010, "OB", bytes(5 * 2**20))
    one.save_as(path)
    assert pixels(path) == PIXELS.tolist()
    monkeypatch.setattr(dicom_tags, "FREE_EXPANSION", 2**20)
    refused(path, Code.SCAN_TOO_LARGE, "deflated")


def test_other_compressions_of_tiff_are_decoded_in_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, gray = tmp_path / "a.tif", np.arange(20 * 24, dtype=np.uint8).reshape(20, 24)
    tifffile.imwrite(path, gray, compression="zlib")
    # tifffile decodes Deflate without imagecodecs
    monkeypatch.setattr(tiff_segments, "can_decompress", lambda page: False)
    monkeypatch.setattr(pictures, "find_spec", lambda name: name)
    decoder._child.stop()
    assert read_scan(path).array[0].T.tolist() == gray.tolist() and child_id()
    first, content = child_id(), bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        content[file.pages[0].dataoffsets[0]] ^= 0xFF
    path.write_bytes(content)
    refused(path, Code.SCAN_DAMAGED)
    assert child_id() == first
