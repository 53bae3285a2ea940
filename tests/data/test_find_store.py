"""The store of a run is found in the run, at its recorded path, or next to the runs of a moved folder."""

import shutil
from pathlib import Path

import pytest

from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store, find_store
from user_errors import user_error


def begun(path: Path, store: Path, identity: str) -> RunFolder:
    run = RunFolder(path)
    path.mkdir(parents=True)
    facts = {"path": str(store), "identity": identity, "classes": ["background", "ring"], "channels": 1}
    run.update_manifest({"store": facts, "device": "cpu", "versions": {}, "started": ""})
    return run


def test_the_store_in_the_run_comes_first(store: Store, tmp_path: Path) -> None:
    run = begun(tmp_path / "run", store.path, store.identity)
    assert find_store(run) == store.path
    shutil.copytree(store.path, run.store)
    assert find_store(run) == run.store


def test_another_store_at_the_recorded_path_is_not_used(store: Store, tmp_path: Path) -> None:
    with user_error(Code.STORE_MISSING, tmp_path / "run"):
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


def test_the_store_of_another_run_is_not_used(store: Store, tmp_path: Path) -> None:
    run = begun(tmp_path / "runs" / "fold-0", tmp_path / "gone", "another")
    shutil.copytree(store.path, tmp_path / "runs" / "store")
    with user_error(Code.STORE_MISSING, run.path, "gone"):
        find_store(run)
    with user_error(Code.STORE_MISSING, run.path, "put it back"):
        find_store(run, "put it back")
