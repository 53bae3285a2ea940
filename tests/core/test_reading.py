"""Only regular files are opened."""

import errno
import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from graftseg.core.reading import check_regular, open_regular, read_bytes, read_start, read_text, sha256_of

READERS: tuple[Callable[..., Any], ...] = (open_regular, check_regular, read_bytes, read_text, sha256_of)


def special_files(folder: Path) -> list[Path]:
    """Return a pipe, a link to it and a device that never ends."""
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("pipe")
    return [folder / "pipe", folder / "link", Path("/dev/zero")]


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    for path in special_files(tmp_path):
        for read in READERS:
            with pytest.raises(OSError, match="not a regular file") as caught:
                read(path)
            assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, str(path))
        assert read_start(path, 4) == b""


def test_a_folder_is_refused(tmp_path: Path) -> None:
    readers: tuple[Callable[..., Any], ...] = (*READERS, partial(read_start, count=4))
    for read in readers:
        with pytest.raises(IsADirectoryError):
            read(tmp_path)


def test_a_file_of_size_0_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files below /proc have the size 0. Reading /proc/kmsg waits for the next message of the kernel."""
    (tmp_path / "link").symlink_to("/proc/kmsg")
    (tmp_path / "empty").touch()
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lambda *_: pytest.fail("opened"))
        for path in (tmp_path / "link", tmp_path / "empty"):
            assert read_bytes(path) == read_start(path, 4) == b"" and read_text(path) == ""
            assert sha256_of(path) == hashlib.sha256().hexdigest()
            with pytest.raises(ValueError, match="empty"):
                check_regular(path)


def test_a_pipe_that_replaces_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"content")
    regular, (pipe, *_) = (tmp_path / "file").stat(), special_files(tmp_path)
    handles = len([*Path("/proc/self/fd").iterdir()])
    monkeypatch.setattr(Path, "stat", lambda path: regular)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(pipe)
    assert len([*Path("/proc/self/fd").iterdir()]) == handles


def test_content_of_regular_files(tmp_path: Path) -> None:
    path, content = tmp_path / "file", "caf\u00e9\r\nb\rc\n".encode()
    path.write_bytes(content)
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        assert read_bytes(tmp_path / name) == content and read_start(tmp_path / name, 3) == b"caf"
        assert sha256_of(tmp_path / name) == hashlib.sha256(content).hexdigest()
        check_regular(tmp_path / name)
    assert read_text(path) == "caf\u00e9\nb\nc\n" == path.read_text("utf-8")
    assert read_text(path, "ascii", "ignore") == "caf\nb\nc\n"
    with open_regular(path) as stream:
        assert stream.seek(2) == 2 and stream.read(2) == b"f\xc3"
    large = bytes(range(256)) * 4096
    path.write_bytes(large)
    assert sha256_of(path) == hashlib.sha256(large).hexdigest()


def test_a_limit_is_exact(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_bytes(tmp_path / "file", 7) == b"content" and read_text(tmp_path / "file", limit=7) == "content"
    for read in READERS[2:4]:
        with pytest.raises(OSError, match="larger than 6 bytes") as caught:
            read(tmp_path / "file", limit=6)
        assert caught.value.errno == errno.EFBIG
