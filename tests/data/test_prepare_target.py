"""Stores of other data: what an attempt left that nobody went on with is replaced, and nothing else."""

import shutil
from pathlib import Path

import pytest
from check_fakes import image, make_scans, put
from command_line import contents

from graftseg.core.errors import UserError
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import PrepareSettings, prepare
from graftseg.data.store import CASES, MANIFEST, Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_scans(tmp_path / "data")


@pytest.fixture
def other(root: Path, tmp_path: Path) -> Path:
    """The same data in another place, but for one scan; all else has the same names, sizes and times."""
    copied = Path(shutil.copytree(root, tmp_path / "other"))
    put(copied, "imagesTr/l0", image(99))
    return copied


def make(data: Path, out: Path, *, anew: bool = False) -> Store:
    return prepare(read_layout(data), out, PrepareSettings(dimensions=3), anew=anew)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_store_that_may_be_made_anew(root: Path, other: Path, tmp_path: Path, is_whole: bool) -> None:
    make(root, tmp_path / "store")
    if not is_whole:
        (tmp_path / "store" / MANIFEST).unlink()
    made, fresh = make(other, tmp_path / "store", anew=True), make(other, tmp_path / "fresh")
    assert (made.root, made.identity) == (str(other), fresh.identity)
    assert contents(tmp_path / "store" / CASES) == contents(tmp_path / "fresh" / CASES)


@pytest.mark.parametrize("where", ["notes.txt", f"{CASES}/notes.txt", f"{CASES}/mine.json/x"])
def test_a_store_among_foreign_files_is_refused(root: Path, other: Path, tmp_path: Path, where: str) -> None:
    out = tmp_path / "store"
    make(root, out)
    (out / where).parent.mkdir(exist_ok=True)
    (out / where).write_text("mine")
    before = contents(out)
    with pytest.raises(UserError, match=f"the store was made from {root}, not from {other}; name another"):
        make(other, out, anew=True)
    assert contents(out) == before


@pytest.mark.parametrize("linked", ["", CASES])
def test_a_link_to_a_store_is_refused(root: Path, other: Path, tmp_path: Path, linked: str) -> None:
    out = tmp_path / "store"
    make(root, out)
    (out / linked).rename(tmp_path / "elsewhere")
    (out / linked).symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=f"the store was made from {root}, not from {other}"):
        make(other, out, anew=True)
    assert contents(tmp_path / "elsewhere") == before
