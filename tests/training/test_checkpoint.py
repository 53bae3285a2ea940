"""Checkpoints: verified, or not used."""

import os
import random
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from graftseg.core.errors import Code
from graftseg.training.checkpoint import KEPT, checkpoints_in, load_checkpoint, load_latest, save_checkpoint
from user_errors import user_error


def state(number: int) -> dict[str, object]:
    return {"step": number, "weights": torch.arange(64.0) + number, "nested": {"names": ["a"], "rate": 0.1}}


def test_round_trip(tmp_path: Path) -> None:
    loaded = load_checkpoint(save_checkpoint(tmp_path, 7, state(7)))
    assert loaded["step"] == 7
    assert torch.equal(loaded["weights"], torch.arange(64.0) + 7)
    assert loaded["nested"] == {"names": ["a"], "rate": 0.1}


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10, 9):
        save_checkpoint(tmp_path, step, state(step))
    assert [path.name for path in checkpoints_in(tmp_path)] == ["step-00000009.ckpt", "step-00000010.ckpt"]
    assert KEPT == 2


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, state(1))
    content, rng = path.read_bytes(), random.Random(0)
    for _ in range(300):
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        with user_error(Code.CHECKPOINT_DAMAGED, path):
            load_checkpoint(path)


@pytest.mark.parametrize("length", [0, 5, 39, 40, 41, 200])
def test_truncated_file_falls_back_to_the_previous_checkpoint(
    tmp_path: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    save_checkpoint(tmp_path, 1, state(1))
    newest = save_checkpoint(tmp_path, 2, state(2))
    newest.write_bytes(newest.read_bytes()[:length])
    latest = load_latest(tmp_path)
    assert latest is not None and latest.path.name == "step-00000001.ckpt" and latest.state["step"] == 1
    assert "step-00000002.ckpt" in caplog.text and Code.CHECKPOINT_DAMAGED in caplog.text


@pytest.mark.parametrize("target", [None, "/dev/zero", "/proc/kmsg", "nowhere"])
def test_the_previous_checkpoint_is_used_instead_of_a_special_file(tmp_path: Path, target: str | None) -> None:
    save_checkpoint(tmp_path, 1, state(1))
    newest = save_checkpoint(tmp_path, 2, state(2))
    newest.unlink()
    if target is None:
        os.mkfifo(newest)
    else:
        newest.symlink_to(target)
    with user_error(Code.CHECKPOINT_DAMAGED, newest):
        load_checkpoint(newest)
    latest = load_latest(tmp_path)
    assert latest is not None and latest.state["step"] == 1 and checkpoints_in(tmp_path) == [latest.path]


def test_a_checkpoint_without_permission_does_not_count_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_checkpoint(tmp_path, 1, state(1))
    with monkeypatch.context() as patched, pytest.raises(PermissionError):
        patched.setattr(os, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
        load_latest(tmp_path)
    assert checkpoints_in(tmp_path) == [path]


def test_no_usable_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load_latest(tmp_path) is None
    for step, which in ((1, "the only checkpoint is"), (2, "all 2 checkpoints are")):
        save_checkpoint(tmp_path, step, state(step)).write_bytes(b"")
        for _ in range(2):
            with user_error(Code.CHECKPOINT_DAMAGED, tmp_path, which):
                load_latest(tmp_path)
    assert caplog.text == ""


def test_full_memory_does_not_count_as_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    path = save_checkpoint(tmp_path, 1, state(1))
    with monkeypatch.context() as patched, pytest.raises(torch.OutOfMemoryError):
        patched.setattr(torch, "load", fails)
        load_latest(tmp_path)
    assert load_checkpoint(path)["step"] == 1


def test_failed_write_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, state(1))
    with pytest.raises(AttributeError):
        save_checkpoint(tmp_path, 2, {"cannot": lambda: None})
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001.ckpt"]


def test_loading_executes_no_code(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (Path(tmp_path / "trap"),))  # type: ignore[return-value]

    path = save_checkpoint(tmp_path, 1, {"trap": Trap()})
    with user_error(Code.CHECKPOINT_DAMAGED, path, "code"):
        load_checkpoint(path)
    assert not (tmp_path / "trap").exists()
