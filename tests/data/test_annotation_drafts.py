import os
from pathlib import Path

import numpy as np
import pytest

from graftseg.core.errors import Code
from graftseg.core.types import Geometry
from graftseg.data.annotation import JOURNAL, RUN, Canvas, Draft, Runs
from user_errors import user_error

GEOMETRY = Geometry((4, 3), tuple(map(tuple, np.eye(4).tolist())))
CANVAS = Canvas(GEOMETRY, lambda labels: labels.ravel(order="F"), lambda drawing: drawing.reshape((4, 3), order="F"))


def stroke(*runs: tuple[int, int, int]) -> Runs:
    return np.array(list(runs), RUN)


@pytest.fixture
def draft(tmp_path: Path) -> Draft:
    return Draft.begin(tmp_path / "case", CANVAS, np.ones((4, 3), np.uint8), {"from": "prediction"})


def test_strokes_survive_a_restart(draft: Draft, tmp_path: Path) -> None:
    assert draft.add(1, stroke((0, 3, 2))) == 1
    assert draft.add(2, stroke((2, 1, 0), (11, 1, 2))) == 2
    again = Draft(tmp_path / "case", CANVAS)
    assert again.count == 2
    assert again.drawing.tolist() == [2, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    assert again.labels[:, 0].tolist() == [2, 2, 0, 1]
    assert again.changed == 4


def test_a_repeated_stroke_changes_nothing(draft: Draft, tmp_path: Path) -> None:
    draft.add(1, stroke((0, 1, 2)))
    assert draft.add(1, stroke((5, 1, 2))) == 1
    assert draft.changed == Draft(tmp_path / "case", CANVAS).changed == 1


def test_a_missing_stroke_is_an_error(draft: Draft) -> None:
    with user_error(Code.RUN_MISMATCH, "case"):
        draft.add(2, stroke((0, 1, 2)))
    assert (draft.count, draft.changed) == (0, 0)


def test_every_cut_of_the_journal_keeps_all_complete_strokes(draft: Draft, tmp_path: Path) -> None:
    ends, journal = [0], tmp_path / "case" / JOURNAL
    for number in range(1, 4):
        draft.add(number, stroke((number, 1, 2)))
        ends.append(journal.stat().st_size)
    content = journal.read_bytes()
    for length in range(len(content) + 1):
        journal.write_bytes(content[:length])
        complete = max(number for number, end in enumerate(ends) if end <= length)
        cut = Draft(tmp_path / "case", CANVAS)
        assert (cut.count, cut.changed) == (complete, complete)
        assert journal.stat().st_size == ends[complete]
        assert cut.add(complete + 1, stroke((9, 1, 0))) == complete + 1
        assert Draft(tmp_path / "case", CANVAS).count == complete + 1


def test_a_damaged_stroke_ends_the_journal(draft: Draft, tmp_path: Path) -> None:
    for number in range(1, 3):
        draft.add(number, stroke((number, 1, 2)))
    journal = tmp_path / "case" / JOURNAL
    content = bytearray(journal.read_bytes())
    content[-1] ^= 1
    journal.write_bytes(content)
    assert Draft(tmp_path / "case", CANVAS).count == 1


def test_a_full_disk_keeps_the_journal(draft: Draft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft.add(1, stroke((0, 1, 2)))
    journal = tmp_path / "case" / JOURNAL
    before = journal.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with user_error(Code.WRITE_FAILED, journal):
        draft.add(2, stroke((1, 1, 2)))
    assert journal.read_bytes() == before
    assert (draft.count, draft.changed) == (1, 1)


def test_reset_is_a_stroke(draft: Draft, tmp_path: Path) -> None:
    draft.add(1, stroke((0, 5, 2)))
    assert draft.reset() == 2
    assert draft.reset() == 2
    assert Draft(tmp_path / "case", CANVAS).changed == 0


def test_a_removed_draft_is_gone(draft: Draft, tmp_path: Path) -> None:
    draft.remove()
    assert not Draft.exists(tmp_path / "case")


def test_a_draft_of_another_grid_is_refused(draft: Draft, tmp_path: Path) -> None:
    other = Canvas(Geometry((3, 4), GEOMETRY.affine), CANVAS.to_drawing, CANVAS.to_labels)
    with user_error(Code.GEOMETRY_MISMATCH, tmp_path / "case"):
        Draft(tmp_path / "case", other)
