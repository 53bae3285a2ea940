"""The store of a run is found where it was, in the run, and beside the runs of a moved folder."""

import shutil
from pathlib import Path

import pytest

from graftseg.core.errors import UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store, find_store


def begun(path: Path, store: Path, identity: str) -> RunFolder:
    run = RunFolder(path)
    path.mkdir(parents=True)
    facts = {"path": str(store), "identity": identity, "classes": ["background", "ring"], "channels": 1}
    run.update_manifest({"store": facts, "device": "cpu", "versions": {}, "started": ""})
    return run


def test_the_run_s_own_comes_first(store: Store, tmp_path: Path) -> None:
    run = begun(tmp_path / "run", store.path, store.identity)
    assert find_store(run) == store.path
    shutil.copytree(store.path, run.store)
    assert find_store(run) == run.store


def test_another_store_in_its_old_place_is_not_taken(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="its store is no longer at"):
        find_store(begun(tmp_path / "run", store.path, "another"))


def test_a_run_that_was_moved_with_its_store(store: Store, tmp_path: Path) -> None:
    run = begun(tmp_path / "run", tmp_path / "gone", store.identity)
    shutil.copytree(store.path, run.store)
    assert find_store(run) == run.store


@pytest.mark.parametrize("within", ["fold-1", "seed-0", "baseline/fold-1"])
def test_a_folder_of_runs_that_was_moved_with_its_store(store: Store, tmp_path: Path, within: str) -> None:
    run = begun(tmp_path / "runs" / within, tmp_path / "gone", store.identity)
    shutil.copytree(store.path, tmp_path / "runs" / "store")
    assert find_store(run) == tmp_path / "runs" / "store"


def test_the_store_of_another_run_is_not_taken(store: Store, tmp_path: Path) -> None:
    run = begun(tmp_path / "runs" / "fold-0", tmp_path / "gone", "another")
    shutil.copytree(store.path, tmp_path / "runs" / "store")
    with pytest.raises(UserError, match=r"its store is no longer at .*gone; name a store or the folder of the scans"):
        find_store(run)
    with pytest.raises(UserError, match="gone; put it back"):
        find_store(run, "put it back")
