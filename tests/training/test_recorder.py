"""The log of a run: lines in order, on time, and only with finite losses."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from graftseg.core.run_folder import RunFolder, read_log
from graftseg.training import recorder as module
from graftseg.training.clock import StageWork
from graftseg.training.recorder import (
    BASELINE,
    BEFORE_BASELINE,
    ONLY_RUN,
    NonFiniteLossError,
    ProgressLabel,
    Recorder,
    fold_labels,
)


def place(step: int) -> dict[str, Any]:
    return {"stage": 0, "method": "bcp", "step": step, "global_step": 10 + step, "lr": 0.1}


def add(recorder: Recorder, step: int, **terms: float) -> None:
    values = torch.tensor([*terms.values()])
    recorder.add(place(step), tuple(terms), torch.cat([values, values.sum(0, keepdim=True)]))


def opened(folder: Path, *, every: int = 2, done: int = 0, tensorboard: bool = False) -> Recorder:
    return Recorder(RunFolder(folder), [StageWork(20)], done, every=every, tensorboard=tensorboard)


def test_lines_are_written_together_and_in_order(tmp_path: Path) -> None:
    path = RunFolder(tmp_path).log_file
    with opened(tmp_path, every=2) as recorder:
        add(recorder, 1, L_in=0.5, L_out=0.25)
        assert not recorder.is_full
        add(recorder, 2, L_in=1.0, L_out=2.0)
        assert recorder.is_full and read_log(path) == []
        recorder.flush()
        assert not recorder.is_full and len(read_log(path)) == 2
        recorder.scores({"method": "bcp", "global_step": 12, "validation": {"dice": 0.75}})
        add(recorder, 3, L_in=0.5, L_out=0.0)
        recorder.flush()
        recorder.flush()
        assert read_log(path) == [
            place(1) | {"terms": {"L_in": 0.5, "L_out": 0.25}, "total": 0.75},
            place(2) | {"terms": {"L_in": 1.0, "L_out": 2.0}, "total": 3.0},
            {"method": "bcp", "global_step": 12, "validation": {"dice": 0.75}},
            place(3) | {"terms": {"L_in": 0.5, "L_out": 0.0}, "total": 0.5},
        ]


def test_steps_with_different_numbers_of_terms_are_read_together(tmp_path: Path) -> None:
    """The steps between two flushes belong to two stages."""
    with opened(tmp_path) as recorder:
        add(recorder, 1, L_in=0.5, L_out=0.25)
        add(recorder, 2, L=4.0)
        recorder.send()
        terms = [line["terms"] for line in read_log(RunFolder(tmp_path).log_file)]
    assert terms == [{"L_in": 0.5, "L_out": 0.25}, {"L": 4.0}]


class SlowTransfer(module._Transfer):
    """A transfer whose values must be waited for, as from a GPU."""

    def __init__(self, steps: list[module.LoggedStep]) -> None:
        super().__init__(steps)
        self.from_gpu = True
        self._arrival: Any = self
        self.waited_for = 0

    def synchronize(self) -> None:
        self.waited_for += 1


def test_waiting_steps_are_written_with_the_next_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_Transfer", SlowTransfer)

    def steps() -> list[int]:
        return [line["step"] for line in read_log(RunFolder(tmp_path).log_file)]

    with opened(tmp_path, every=1) as recorder:
        add(recorder, 1, L=1.0)
        recorder.send()
        recorder.show({})
        assert steps() == []
        add(recorder, 2, L=2.0)
        recorder.send()
        recorder.show({})
        assert steps() == [1]
        add(recorder, 3, L=3.0)
        recorder.flush()
        assert steps() == [1, 2, 3]
        recorder.flush()
        assert steps() == [1, 2, 3]


def test_a_waiting_loss_that_is_not_finite_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_Transfer", SlowTransfer)
    with opened(tmp_path, every=1) as recorder:
        add(recorder, 1, L=float("nan"))
        recorder.send()
        add(recorder, 2, L=1.0)
        with pytest.raises(NonFiniteLossError, match="term L is nan at step 1"):
            recorder.send()
        recorder.flush()
        assert [line["step"] for line in read_log(RunFolder(tmp_path).log_file)] == [2]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_is_reported_with_step_and_term(tmp_path: Path, value: float) -> None:
    with opened(tmp_path) as recorder:
        add(recorder, 1, L_in=0.5, L_out=0.5)
        add(recorder, 2, L_in=0.5, L_out=value)
        add(recorder, 3, L_in=value, L_out=0.5)
        with pytest.raises(NonFiniteLossError, match=f"term L_out is {value} at step 2") as caught:
            recorder.flush()
        assert (caught.value.step, caught.value.term) == (2, "L_out")
        recorder.flush()
    assert [line["step"] for line in read_log(RunFolder(tmp_path).log_file)] == [1]


def test_a_resumed_run_forgets_the_lines_after_its_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path) as recorder:
        for step in (1, 2, 3):
            add(recorder, step, L=1.0)
        recorder.flush()
    with opened(tmp_path, done=11) as recorder:
        add(recorder, 2, L=2.0)
        recorder.flush()
    assert [line["total"] for line in read_log(RunFolder(tmp_path).log_file)] == [1.0, 2.0]


class Writer:
    """A replacement for the TensorBoard writer that records its calls."""

    def __init__(self, folder: str, **settings: object) -> None:
        self.folder, self.settings = folder, settings
        self.scalars: list[tuple[str, float, int]] = []
        self.closed = False
        WRITERS.append(self)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))

    def close(self) -> None:
        self.closed = True


WRITERS: list[Writer] = []


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    """Replace TensorBoard by ``Writer``."""
    WRITERS.clear()
    for name in ("torch.utils.tensorboard", "torch.utils.tensorboard.writer"):
        fake = ModuleType(name)
        vars(fake)["SummaryWriter"] = Writer
        monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    return WRITERS


def test_tensorboard_gets_every_term_and_score(tmp_path: Path, writers: list[Writer]) -> None:
    with opened(tmp_path, done=10, tensorboard=True) as recorder:
        add(recorder, 1, L_in=0.5, L_out=0.25)
        recorder.flush()
        recorder.scores({"method": "bcp", "global_step": 11, "validation": {"dice": 0.75}})
        (writer,) = writers
        assert not writer.closed
    assert writer.closed
    assert writer.folder == str(tmp_path / "tensorboard")
    assert writer.settings == {"purge_step": 11}
    assert writer.scalars == [("bcp/L_in", 0.5, 11), ("bcp/L_out", 0.25, 11), ("bcp/dice", 0.75, 11)]


def test_the_log_is_written_without_tensorboard(
    tmp_path: Path, writers: list[Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with opened(tmp_path, tensorboard=True) as recorder:
        add(recorder, 1, L=1.0)
        recorder.flush()
    assert writers == []
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_the_setting_leaves_tensorboard_out(tmp_path: Path, writers: list[Writer]) -> None:
    with opened(tmp_path, tensorboard=False) as recorder:
        add(recorder, 1, L=1.0)
        recorder.flush()
    assert writers == []


def test_the_bar_shows_the_loss_and_the_time_of_each_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with opened(tmp_path) as recorder:
        recorder.show({"batch": 1.0})
        add(recorder, 1, L=0.5)
        recorder.flush()
        recorder.show({"batch": 0.01, "forward": 0.03})
    captured = capsys.readouterr()
    assert "loss 0.500 · 40 ms: batch 25% forward 75%" in captured.err
    assert captured.out == ""


def test_without_a_terminal_there_is_no_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with opened(tmp_path) as recorder:
        add(recorder, 1, L=0.5)
        recorder.flush()
        recorder.show({"batch": 0.01})
    assert capsys.readouterr() == ("", "")


Shown = Sequence[tuple[float, int, int]]


def record_steps(
    shown: Shown,
    work: Sequence[StageWork],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    label: ProgressLabel = ONLY_RUN,
    done: int = 0,
) -> None:
    """Record steps, given as seconds since the start, stage and global step."""
    times = iter([0.0, *(seconds for seconds, _, _ in shown)])
    monkeypatch.setattr(module, "monotonic", lambda: next(times))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with Recorder(RunFolder(folder), work, done, every=1, tensorboard=False, label=label) as recording:
        for _, stage, step in shown:
            at = {"stage": stage, "method": ("first", "second")[stage], "step": step, "global_step": step}
            recording.add(at, ("L",), torch.tensor([0.5, 0.5]))
            recording.flush()
            recording.show({"forward": 0.1})
    assert next(times, None) is None


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        # 15 s a step, then 60: the average is 28.5 s, then 29 s
        (
            [(15.0, 0, 1), (30.0, 0, 2), (90.0, 0, 3), (95.0, 0, 4), (150.0, 0, 5)],
            [(2, "2 minutes"), (3, "2 minutes"), (5, "1 minute")],
        ),
        # a compilation of 100 s, then 20 s a step: 5 of them are left, not 5 of 120 s
        ([(120.0, 0, 1), (140.0, 0, 2), (160.0, 0, 3)], [(1, ""), (3, "2 minutes")]),
        # one that ends within half a minute is left out too: 5 s a step, not 12
        ([(26.0, 0, 1), (31.0, 0, 2)], [(2, "less than a minute")]),
        # the second stage compiles too, and its pace is its own
        (
            [(10.0, 0, 1), (30.0, 0, 2), (90.0, 1, 3), (130.0, 1, 4), (170.0, 1, 5)],
            [(2, "2 minutes"), (3, ""), (4, "3 minutes"), (5, "2 minutes")],
        ),
        # the same step shown twice has no pace, and nothing is left after the last
        ([(30.0, 0, 4), (60.0, 0, 4), (90.0, 0, 8)], [(4, ""), (4, ""), (8, "")]),
    ],
)
def test_without_a_terminal_lines_report_the_progress(
    shown: Shown,
    lines: list[tuple[int, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record_steps(shown, [StageWork(2), StageWork(6)], tmp_path, monkeypatch)
    names = {step: ("first", "second")[stage] for _, stage, step in shown}
    assert capsys.readouterr().err.splitlines() == [
        f"{names[step]}: step {step} of 8, loss 0.500" + (f", {left} left" if left else "") for step, left in lines
    ]


def test_a_line_is_not_printed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a GPU compiles, no lines arrive. This time does not count for the speed of the last stage."""
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with opened(tmp_path) as recorder:
        for seconds, step in ((10.0, 1), (40.0, 2), (400.0, None)):
            now[0] = seconds
            if step is not None:
                add(recorder, step, L=0.5)
                recorder.flush()
            recorder.show({})
    assert capsys.readouterr().err == "bcp: step 12 of 20, loss 0.500, 4 minutes left\n"


def test_a_resumed_run_has_no_pace_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record_steps([(60.0, 0, 110), (120.0, 0, 120)], [StageWork(140)], tmp_path, monkeypatch, done=100)
    assert capsys.readouterr().err.splitlines() == [
        "first: step 110 of 140, loss 0.500",
        "first: step 120 of 140, loss 0.500, 2 minutes left",
    ]


def test_a_line_counts_steps_that_a_check_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with opened(tmp_path) as recorder:
        recorder.replan([StageWork(14), StageWork(10)])
        now[0] = 40.0
        add(recorder, 11, L=0.5)
        recorder.flush()
        recorder.show({})
    assert capsys.readouterr().err == "bcp: step 21 of 24, loss 0.500\n"


def test_a_line_counts_later_stages_and_later_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step takes 60 s, a step of the second stage 120 s: 2 + 2 x 2 minutes are left, and 10 for the baseline."""
    label = ProgressLabel(next="the baseline", later=(StageWork(10),))
    work = [StageWork(4), StageWork(2, cost=2.0)]
    record_steps([(10.0, 0, 1), (70.0, 0, 2)], work, tmp_path, monkeypatch, label)
    expected = "first: step 2 of 6, loss 0.500, 6 minutes left, 16 minutes with all later runs; next: the baseline\n"
    assert capsys.readouterr().err == expected


def test_the_last_run_counts_the_final_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two steps of 60 s are left, and predictions that take as long as three steps."""
    label = ProgressLabel("the baseline", later=(StageWork(0, before=3.0),))
    record_steps([(10.0, 0, 1), (70.0, 0, 2)], [StageWork(4)], tmp_path, monkeypatch, label)
    assert capsys.readouterr().err == "the baseline, first: step 2 of 4, loss 0.500, 5 minutes left\n"


def test_an_interruption_is_not_part_of_the_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with opened(tmp_path) as recorder:
        for seconds, step in ((10.0, 1), (400.0, 2)):
            now[0] = seconds
            recorder.leave_out(330.0 if step == 2 else 0.0)
            add(recorder, step, L=0.5)
            recorder.flush()
            recorder.show({})
    assert capsys.readouterr().err == "bcp: step 12 of 20, loss 0.500, 8 minutes left\n"


def test_the_work_of_later_folds() -> None:
    run, baseline = StageWork(5), StageWork(3)
    labels = fold_labels(2, baseline=True, work=[run], baseline_work=[baseline])
    assert [label.later for label in labels] == [(run, baseline, baseline), (baseline, baseline), (baseline,), ()]


@pytest.mark.parametrize(
    ("label", "start", "end"),
    [
        (BEFORE_BASELINE, "first: step 2", "; next: the baseline"),
        (BASELINE, "the baseline, first: step 2", ""),
        (fold_labels(2, baseline=True)[1], "fold 1 (2 of 4), first: step 2", "; next: fold 0 of the baseline"),
    ],
)
def test_a_line_names_the_run_and_the_next_run(
    label: ProgressLabel,
    start: str,
    end: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record_steps([(10.0, 0, 1), (70.0, 0, 2)], [StageWork(4)], tmp_path, monkeypatch, label)
    assert capsys.readouterr().err == f"{start} of 4, loss 0.500, 2 minutes left{end}\n"


@pytest.mark.parametrize(("columns", "next_is_told"), [("200", True), ("80", False)])
def test_the_bar_names_the_run_and_if_there_is_space_the_next_run(
    columns: str,
    next_is_told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    label = fold_labels(3, baseline=False)[0]
    with Recorder(RunFolder(tmp_path), [StageWork(20)], 0, every=1, tensorboard=False, label=label) as recorder:
        add(recorder, 1, L=0.5)
        recorder.flush()
        recorder.show({"forward": 0.03})
    said = capsys.readouterr().err
    assert "fold 0 (1 of 3), bcp" in said
    assert ("; next: fold 1" in said) is next_is_told
