import json
from pathlib import Path

import numpy as np
import pytest
from report_fakes import write_log, write_snapshots

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.reporting import run_files
from graftseg.reporting.run_files import (
    Log,
    Stage,
    read_curves,
    read_recipe,
    read_snapshot,
    snapshot_names,
    snapshot_paths,
)
from user_errors import user_error


def log_of(run: Path) -> Log:
    log = read_curves(RunFolder(run))
    assert log is not None
    return log


def test_log_becomes_curves_and_stages(tmp_path: Path) -> None:
    write_log(tmp_path, first=3, second=2)
    log = log_of(tmp_path)
    assert log.total is not None
    assert log.total.steps.tolist() == [0, 1, 2, 3, 4]
    assert log.total.values.tolist() == [2, 2, 2, 1, 1]
    assert log.terms["L_in"].steps.tolist() == [3, 4]
    assert log.validation["dice"].values.tolist() == [0.54]
    assert log.stages == (Stage("bcp-pretrain", 0, 2), Stage("bcp", 3, 4))
    assert [log.stage_of(step) for step in (0, 2, 3, 99)] == [0, 0, 1, 1]
    assert log.dropped == 0


def test_values_that_are_not_finite_are_dropped_and_counted(tmp_path: Path) -> None:
    lines = [{"global_step": step, "total": value} for step, value in enumerate([1.0, float("nan"), None, 1e300])]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    log = log_of(tmp_path)
    assert log.total is not None
    assert log.total.values.tolist() == [1.0]
    assert log.dropped == 3


def test_last_line_may_be_cut_off_but_no_other(tmp_path: Path) -> None:
    whole = json.dumps({"global_step": 0, "total": 1.0})
    path = tmp_path / "log.jsonl"
    path.write_text(f"{whole}\n{whole[:9]}")
    assert log_of(tmp_path).total is not None
    path.write_text(f"{whole}\n{whole[:9]}\n{whole}\n")
    with user_error(Code.DAMAGED_FILE, path):
        read_curves(RunFolder(tmp_path))


@pytest.mark.parametrize("part", ['"terms": "x"', '"terms": {"L_in": "x"}', '"stage": []', '"total": "x"'])
def test_a_line_with_values_of_the_wrong_type(tmp_path: Path, part: str) -> None:
    (tmp_path / "log.jsonl").write_text(f'{{"global_step": 1, "total": 1.0, {part}}}\n')
    with user_error(Code.DAMAGED_FILE, "log.jsonl"):
        log_of(tmp_path)


def test_no_log_is_none(tmp_path: Path) -> None:
    assert read_curves(RunFolder(tmp_path)) is None
    (tmp_path / "log.jsonl").write_text("")
    assert read_curves(RunFolder(tmp_path)) is None


def test_recipe_must_be_yaml(tmp_path: Path) -> None:
    assert read_recipe(RunFolder(tmp_path)) is None
    path = tmp_path / "recipe.yaml"
    path.write_text("a: {b: 1}")
    assert read_recipe(RunFolder(tmp_path)) == {"a": {"b": 1}}
    path.write_text("a: [")
    with user_error(Code.DAMAGED_FILE, path, "YAML"):
        read_recipe(RunFolder(tmp_path))
    path.write_text("!!python/object/apply:os.getcwd []")
    with user_error(Code.DAMAGED_FILE, path, "YAML"):
        read_recipe(RunFolder(tmp_path))


def test_snapshots_come_in_order_of_steps(tmp_path: Path) -> None:
    write_snapshots(tmp_path, (1_000_000, 999_999, 15))
    paths = snapshot_paths(RunFolder(tmp_path))
    assert list(paths) == [15, 999_999, 1_000_000]
    snapshot = read_snapshot(paths[15])
    assert snapshot.step == 15
    assert list(snapshot.arrays) == ["M", "X_in", "X_out", "X_watch_0", "Y_in", "Y_out", "Y_watch_0"]
    assert set(snapshot_names(paths[15])) == {*snapshot.arrays, "method"}


def test_damaged_snapshot_is_named(tmp_path: Path) -> None:
    path = tmp_path / "000001.npz"
    path.write_bytes(b"not a zip file")
    with user_error(Code.DAMAGED_FILE, path):
        read_snapshot(path)
    np.savez(path, a=np.array([object()]))
    with user_error(Code.DAMAGED_FILE, path):
        read_snapshot(path)
    path.write_bytes(b"")
    with user_error(Code.DAMAGED_FILE, path):
        read_snapshot(path)
    np.save(path.with_suffix(".npy"), np.zeros(3))
    with user_error(Code.DAMAGED_FILE, path.with_suffix(".npy")):
        read_snapshot(path.with_suffix(".npy"))


def test_every_changed_byte_of_a_snapshot_gives_an_error_or_a_picture(tmp_path: Path) -> None:
    path, outcomes = tmp_path / "000001.npz", set[object]()
    np.savez_compressed(path, X=np.arange(6.0).reshape(2, 3))
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        try:
            outcomes.add(read_snapshot(path).step)
        except UserError as error:
            outcomes.add(error.code)
    assert outcomes == {1, Code.DAMAGED_FILE}


def test_a_snapshot_cannot_be_larger_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "000001.npz"
    np.savez_compressed(path, X=np.zeros((100, 100)))
    assert read_snapshot(path).arrays["X"].shape == (100, 100)
    monkeypatch.setattr(run_files, "MAX_SNAPSHOT_BYTES", 1000)
    with user_error(Code.DAMAGED_FILE, path):
        read_snapshot(path)
