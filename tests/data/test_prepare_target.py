"""Stores of other data: refused, or replaced if nothing was trained with them."""

import shutil
from pathlib import Path

import pytest
from check_fakes import image, put
from command_line import contents

from graftseg.core.errors import Code
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import PrepareSettings, prepare
from graftseg.data.store import CASES, MANIFEST, Store
from user_errors import user_error


@pytest.fixture
def other(root: Path, tmp_path: Path) -> Path:
    """Return a copy of the data in which one scan differs. All files have the same names, sizes and times."""
    copied = Path(shutil.copytree(root, tmp_path / "other"))
    put(copied, "imagesTr/l0", image(99))
    return copied


def make(data: Path, out: Path, *, overwrite: bool = False) -> Store:
    return prepare(read_layout(data), out, PrepareSettings(dimensions=3), overwrite=overwrite)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_store_of_other_data_is_overwritten(root: Path, other: Path, tmp_path: Path, is_whole: bool) -> None:
    make(root, tmp_path / "store")
    if not is_whole:
        (tmp_path / "store" / MANIFEST).unlink()
    made, fresh = make(other, tmp_path / "store", overwrite=True), make(other, tmp_path / "fresh")
    assert (made.root, made.identity) == (str(other), fresh.identity)
    assert contents(tmp_path / "store" / CASES) == contents(tmp_path / "fresh" / CASES)


def test_foreign_files_in_a_store_are_kept(root: Path, other: Path, tmp_path: Path) -> None:
    out = tmp_path / "store"
    make(root, out)
    foreign = [out / "notes.txt", out / CASES / "notes.txt", out / CASES / "mine.json" / "x"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    make(other, out, overwrite=True)
    assert [path.read_text() for path in foreign] == ["mine"] * 3


@pytest.mark.parametrize("linked", ["", CASES])
def test_a_link_to_a_store_is_refused(root: Path, other: Path, tmp_path: Path, linked: str) -> None:
    out = tmp_path / "store"
    make(root, out)
    (out / linked).rename(tmp_path / "elsewhere")
    (out / linked).symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path / "elsewhere")
    with user_error(Code.TARGET_EXISTS, out, f"{root}, not from {other}"):
        make(other, out, overwrite=True)
    assert contents(tmp_path / "elsewhere") == before
