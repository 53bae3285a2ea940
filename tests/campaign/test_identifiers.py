"""Planted texts are found in every form in which a file may contain them, and a few are searched in all outputs."""

import gzip
import io
import zipfile
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest
from identifiers import identifiers
from leaks import contents, leaked

SECRET = "QZBCDFGHJKLMNP"


def packed(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, SECRET * 9)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        SECRET.encode(),
        SECRET.lower().encode(),
        SECRET.encode("utf-16"),
        SECRET.encode().hex().encode(),
        *(b"x " + b64encode(b"abc"[:shift] + SECRET.encode() + b"def") for shift in range(3)),
        gzip.compress(SECRET.encode()),
        gzip.compress(packed("a")),
        b"data:" + b64encode(packed("a")),
    ],
    ids=lambda content: str(len(content)),
)
def test_a_planted_text_is_found(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    assert any(leaked(SECRET, found) for _, found in contents(tmp_path))


def test_a_planted_text_is_found_in_arrays(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", text=np.array([SECRET]), raw=np.frombuffer(SECRET.encode(), np.uint8))
    assert any(leaked(SECRET, found) for _, found in contents(tmp_path))


def test_nothing_is_found_in_other_texts(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(SECRET[:-1].encode() + gzip.compress(b"x"))
    assert not any(leaked(SECRET, found) for _, found in contents(tmp_path))


@pytest.mark.slow
def test_identifiers(tmp_path: Path) -> None:
    part = identifiers(tmp_path, seed=0, count=20)
    assert (part.tried, part.failures) == (20, [])
