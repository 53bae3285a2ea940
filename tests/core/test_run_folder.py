"""The folder of a run: lock, manifest, snapshots and log."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graftseg import api
from graftseg.core import files, run_folder
from graftseg.core.errors import Code
from graftseg.core.files import PARTIAL
from graftseg.core.run_folder import FORMAT, INTERRUPTED, LOCK, RESUME, RunFolder, RunLog, read_log
from user_errors import user_error


def test_a_folder_is_locked_once_even_within_a_process(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "run"
    with RunFolder(path).lock(), user_error(Code.FOLDER_LOCKED, path):
        RunFolder(path).lock().__enter__()
    with RunFolder(path).lock():
        assert [entry.name for entry in path.iterdir()] == [LOCK]


def test_the_lock_is_released_when_the_run_fails(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with pytest.raises(RuntimeError), run.lock():
        raise RuntimeError
    with run.lock():
        assert not run.exists


def test_a_killed_run_is_interrupted(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.update_manifest({"status": "running"})
    run.recipe_file.touch()
    hold_lock = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('locked', flush=True); "
    words = [sys.executable, "-c", hold_lock + "time.sleep(60)", str(tmp_path / LOCK)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"locked\n"
        facts = api.info(tmp_path)
        process.kill()
    assert facts["status"] == "running" and "resume" not in facts
    assert (api.info(tmp_path)["status"], api.info(tmp_path)["resume"]) == (INTERRUPTED, RESUME)
    assert run.manifest()["status"] == "running", "the file is not changed"


def test_a_run_without_a_recipe_is_described_as_a_run(tmp_path: Path) -> None:
    RunFolder(tmp_path).update_manifest({"status": "finished"})
    facts = api.info(tmp_path)
    assert (facts["kind"], facts["status"]) == ("run", "finished")


def test_how_to_resume_folds(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    files.write_json(run.folds_file, {"folds": [{"held_out": ["a"]}, {"held_out": ["b"]}]})
    assert "resume" not in api.info(tmp_path)
    run.fold(0).update_manifest({"status": "running"})
    run.fold(0).recipe_file.touch()
    facts = api.info(tmp_path)
    assert facts["state"] == {"fold-0": INTERRUPTED, "fold-1": "not started"} and facts["resume"] == RESUME
    with run.fold(0).lock():
        assert "resume" not in api.info(tmp_path)


@pytest.mark.parametrize(("status", "has_hint"), [("stopped", True), ("finished", False), ("failed", False)])
def test_which_runs_get_a_hint_to_resume(tmp_path: Path, status: str, *, has_hint: bool) -> None:
    run = RunFolder(tmp_path)
    run.update_manifest({"status": status})
    run.recipe_file.touch()
    facts = api.info(tmp_path)
    assert facts["status"] == status and ("resume" in facts) is has_hint


def test_locking_deletes_temporary_files_of_killed_processes(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.update_manifest({"status": "running"})
    run.checkpoints.mkdir()
    for folder in (run.path, run.checkpoints):
        (folder / f"{PARTIAL}x-step").touch()
    with run.lock():
        assert sorted(path.name for path in tmp_path.rglob("*")) == [LOCK, "checkpoints", "run.json"]


def test_where_a_run_may_start(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    assert run.is_free
    run.path.mkdir()
    (run.path / LOCK).touch()
    (run.path / f"{PARTIAL}x-recipe.yaml").touch()
    (run.path / "store").mkdir()
    assert run.is_free and not run.exists
    (run.path / "thesis.txt").touch()
    assert not run.is_free
    assert not RunFolder(run.path / "thesis.txt").is_free


def test_updating_the_manifest_keeps_other_entries(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.update_manifest({"status": "running", "store": {"labeled": ["ä"]}})
    assert not run.exists, "a run without its recipe was not started"
    run.recipe_file.write_text("name: x")
    assert run.exists
    run.update_manifest({"status": "finished", "steps": 9})
    facts = {"format": FORMAT, "status": "finished", "store": {"labeled": ["ä"]}, "steps": 9}
    assert run.manifest() == facts
    assert RunFolder(tmp_path / "run").manifest() == facts


@pytest.mark.parametrize("content", ['{"format": 99}', '{"status": "finished"}', "[]", "7"])
def test_another_manifest_is_rejected_and_unchanged(tmp_path: Path, content: str) -> None:
    run = RunFolder(tmp_path)
    run.manifest_file.write_text(content)
    with user_error(Code.NOT_A_RUN, "run.json"):
        run.manifest()
    with user_error(Code.NOT_A_RUN, "run.json"):
        run.update_manifest({"status": "running"})
    assert run.manifest_file.read_text() == content


def test_a_damaged_or_missing_manifest(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with user_error(Code.NOT_A_RUN, tmp_path, "run.json"):
        run.manifest()
    run.manifest_file.write_text('{"format": 1')
    with user_error(Code.DAMAGED_FILE, "run.json"):
        run.manifest()


def test_a_snapshot_is_read_without_pickle(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    pictures: dict[str, npt.NDArray[Any]] = {
        "X_in": np.arange(6, dtype=np.float32).reshape(2, 3),
        "M": np.eye(2, dtype=np.uint8),
    }
    run.save_snapshot(7, pictures)
    with np.load(run.snapshots / "000007.npz", allow_pickle=False) as content:
        assert set(content.files) == {"X_in", "M"}
        for name, picture in pictures.items():
            assert content[name].dtype == picture.dtype and np.array_equal(content[name], picture)


def test_resuming_deletes_later_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [{"global_step": step, "total": 0.5} for step in (1, 2, 3)]
    lines.insert(2, {"global_step": 2, "validation": 0.25})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"global_step": 4, "to')
    log = RunLog(path, resume_at=2)
    assert read_log(path) == lines[:3]
    log.write([{"global_step": 3, "total": 0.125}])
    assert read_log(path) == [*lines[:3], {"global_step": 3, "total": 0.125}]
    log.close()


def test_a_new_run_starts_an_empty_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert read_log(path) == []
    path.write_text(json.dumps({"global_step": 1}) + "\n")
    RunLog(path, resume_at=0).close()
    assert path.read_bytes() == b""


def test_lines_are_on_the_disk_before_the_log_is_closed(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.jsonl", resume_at=0)
    log.write([{"global_step": 1}, {"global_step": 2}])
    assert (tmp_path / "log.jsonl").read_text() == '{"global_step": 1}\n{"global_step": 2}\n'
    log.close()


STARTED: dict[str, Any] = {
    "format": FORMAT,
    "store": {"identity": "ab", "classes": ["background", "x"], "channels": 1},
    "device": "cpu",
    "versions": {"torch": "2"},
    "started": "2025-01-01",
}


@pytest.mark.parametrize("missing", ["store", "device", "versions", "started"])
def test_entries_that_every_started_run_has(tmp_path: Path, missing: str) -> None:
    run = RunFolder(tmp_path)
    run.manifest_file.write_text(json.dumps(STARTED))
    assert run.training_manifest() == STARTED
    run.manifest_file.write_text(json.dumps({key: entry for key, entry in STARTED.items() if key != missing}))
    with user_error(Code.DAMAGED_FILE, "run.json", "entries are missing"):
        run.training_manifest()


@pytest.mark.parametrize("store", [None, ["identity"], "x", {"identity": "ab"}])
def test_a_store_in_the_manifest_that_is_no_description(tmp_path: Path, store: object) -> None:
    run = RunFolder(tmp_path)
    run.manifest_file.write_text(json.dumps({**STARTED, "store": store}))
    with user_error(Code.DAMAGED_FILE, "run.json", "entries are missing"):
        run.training_manifest()


@pytest.mark.parametrize("line", ["[]", "5", '{"total": 1}', '{"global_step": "x"}'])
def test_a_log_line_without_step(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_text(f'{{"global_step": 1}}\n{line}\n')
    with user_error(Code.DAMAGED_FILE, "log.jsonl"):
        read_log(tmp_path / "log.jsonl")


def test_a_folder_of_several_seeds_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "seed-3").mkdir()
    (tmp_path / "seed-3" / "run.json").write_text("{}")
    with user_error(Code.NOT_A_RUN, tmp_path, "seed-3"):
        RunFolder(tmp_path).manifest()


def test_a_manifest_is_read_once_per_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, reads = RunFolder(tmp_path), list[Path]()
    read = files.read_json

    def counting(path: Path) -> Any:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(run_folder, "read_json", counting)
    run.update_manifest({"status": "running"})
    for _ in range(3):
        assert run.manifest()["status"] == RunFolder(tmp_path).manifest()["status"] == "running"
    run.update_manifest({"status": "finished"})
    assert run.manifest()["status"] == "finished"
    assert len(reads) == 2


@pytest.mark.parametrize("content", ["", '{"global_step": 2, "total": 1}\n', '{"global_step": 3, "total": 1}'])
def test_a_finished_training_needs_its_whole_log(tmp_path: Path, content: str) -> None:
    path = tmp_path / "log.jsonl"
    with user_error(Code.DAMAGED_FILE, path, "missing"):
        run_folder.complete_log(path, 3)
    path.write_text(content)
    with user_error(Code.DAMAGED_FILE, path, "train again"):
        run_folder.complete_log(path, 3)
    path.write_text('{"global_step": 3, "total": 1}\n')
    assert len(run_folder.complete_log(path, 3)) == 1


def test_a_full_disk_names_the_log(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.jsonl", resume_at=0)
    log.close()
    log._stream = Path("/dev/full").open("a")  # noqa: SIM115
    with user_error(Code.WRITE_FAILED, tmp_path / "log.jsonl", "bytes are free"):
        log.write([{"global_step": 1}])
    with user_error(Code.WRITE_FAILED, tmp_path / "log.jsonl", "bytes are free"):
        log.close()
