"""Scans that changed between the start of a run and its resumption."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
from command_line import contents
from tiny import tiny_recipe

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder
from user_errors import user_error


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    return tiny.write_scans(tmp_path / "scans")


@pytest.fixture
def run(scans: Path, tmp_path: Path) -> RunFolder:
    api.train(tiny_recipe(), scans, tmp_path / "run", device="cpu")
    return RunFolder(tmp_path / "run")


def warnings(run: RunFolder, scans: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    api.train(tiny_recipe(), scans, run.path, resume=True, device="cpu")
    return [record.getMessage() for record in caplog.records if "store of the run" in record.getMessage()]


def test_the_same_scans_give_no_warning(run: RunFolder, scans: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings(run, scans, caplog) == []


def test_a_changed_label_map_gives_a_warning(run: RunFolder, scans: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = sorted((scans / "labelsTr").iterdir())[:2]
    shutil.copy(first, second)
    (warning,) = warnings(run, scans, caplog)
    assert second.name.split(".")[0] in warning


def test_a_removed_scan_gives_a_warning(run: RunFolder, scans: Path, caplog: pytest.LogCaptureFixture) -> None:
    removed = min((scans / "imagesUn").iterdir())
    removed.unlink()
    (warning,) = warnings(run, scans, caplog)
    assert removed.name.split("_0000")[0] in warning


def test_a_label_map_without_its_image_gives_a_warning(
    run: RunFolder, scans: Path, caplog: pytest.LogCaptureFixture
) -> None:
    removed = min((scans / "imagesTr").iterdir())
    removed.unlink()
    (warning,) = warnings(run, scans, caplog)
    assert removed.name.split("_0000")[0] in warning


def test_a_missing_folder_gives_a_warning(run: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings(run, tmp_path / "missing", caplog)
    assert "missing" in warning


def test_moved_scans_give_no_warning(run: RunFolder, scans: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings(run, scans.rename(scans.with_name("moved")), caplog) == []


@pytest.mark.parametrize(("owner", "function", "name"), [(Path, "iterdir", "imagesTr"), (os, "open", "labelsTr")])
def test_unreadable_scans_give_a_warning(
    run: RunFolder,
    scans: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    function: str,
    name: str,
) -> None:
    for path in (scans / "labelsTr").iterdir():
        os.utime(path, ns=(0, 0))  # the content of a file is compared if its time has changed
    original = getattr(owner, function)

    def denied(path: Path, *args: Any, **options: Any) -> Any:
        if name in Path(path).parts:
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *args, **options)

    monkeypatch.setattr(owner, function, denied)
    (warning,) = warnings(run, scans, caplog)
    assert name in warning


def test_other_scans_are_refused(run: RunFolder, scans: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for path in scans.rglob("*.nii*"):
        target = other / path.relative_to(scans).parent / f"new{path.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    before = contents(run.path)
    with user_error(Code.RUN_MISMATCH, other):
        api.train(tiny_recipe(), other, run.path, resume=True, device="cpu")
    assert contents(run.path) == before
