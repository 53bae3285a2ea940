"""Work in threads, and progress on stderr."""

import logging
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from graftseg.core import progress
from graftseg.core.progress import ScanProgress, hide_progress, in_parallel, progress_bar, silence, track


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def test_results_are_in_the_order_of_the_items() -> None:
    second_done = Event()

    def work(item: int) -> int:
        if item == 0:
            assert second_done.wait(10)
        second_done.set()
        return item * item

    assert in_parallel(work, range(5), "squaring", workers=2) == [0, 1, 4, 9, 16]


def test_descriptions_are_printed_without_markup_and_control(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "REPORT_SECONDS", -1.0)
    list(track([1], "[/x] \x1b[2J"))
    assert capsys.readouterr().err == "[/x] \\x1b[2J: 1\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    list(track([1], "[/x] \x1b[3J"))
    shown = capsys.readouterr().err
    assert "[/x]" in shown and "\x1b[3J" not in shown


def test_nothing_to_do() -> None:
    assert in_parallel(str, [], "nothing") == []


def test_after_a_failure_no_further_item_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    canceled = Event()

    class Pool(ThreadPoolExecutor):
        """Lets the current item continue only after the others are canceled."""

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            canceled.set()
            super().shutdown(wait=wait)

    def work(item: int) -> int:
        started.append(item)
        if item == 2:
            raise ValueError("item 2 is bad")
        assert item < 2 or canceled.wait(10)
        return item

    monkeypatch.setattr(progress, "ThreadPoolExecutor", Pool)
    with pytest.raises(ValueError, match="item 2 is bad"):
        in_parallel(work, range(100), "failing", workers=1)
    assert started in ([0, 1, 2], [0, 1, 2, 3])


def test_quick_work_without_a_terminal_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(iter("abc"), "letters", total=3)) == ["a", "b", "c"]
    with progress_bar("Predicting", 1) as show:
        scans = ScanProgress(1, show)
        scans.begin(2)
        scans.tick(2)
        scans.end()
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_a_line_is_printed_every_30_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "monotonic", iter([0.0, 31.0, 50.0, 62.0, 63.0]).__next__)
    assert list(track(iter("abcd"), "letters", total=4)) == ["a", "b", "c", "d"]
    assert capsys.readouterr() == ("", "letters: 1 of 4\nletters: 3 of 4\n")


@pytest.mark.parametrize("hidden", [False, True])
def test_on_a_terminal_the_bar_is_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    hide_progress(hidden)
    try:
        assert list(track(iter("abc"), "letters", total=3)) == ["a", "b", "c"]
    finally:
        hide_progress(False)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "" if hidden else ("letters" in captured.err and "3 of 3" in captured.err)


def test_scans_windows_and_their_rate() -> None:
    now, shown = [0.0], list[tuple[float, str]]()
    scans = ScanProgress(3, lambda completed, text: shown.append((completed, text)), clock=lambda: now[0])
    scans.begin(8)
    now[0] = 2.0
    scans.tick(4)
    scans.tick(4)
    now[0] = 16.0
    scans.end()
    assert shown == [
        (0, "0 of 3 scans, window 0 of 8"),
        (0.5, "0 of 3 scans, window 4 of 8, 2 windows/s"),
        (1, "0 of 3 scans, window 8 of 8, 4 windows/s"),
        (1, "1 of 3 scans, 0.5 windows/s"),
    ]


def test_silence(caplog: pytest.LogCaptureFixture) -> None:
    loud = logging.getLogger("loud")
    loud.setLevel(logging.INFO)
    with silence("loud", below=logging.ERROR):
        loud.warning("suppressed")
        loud.error("logged")
        warnings.warn("an error elsewhere in these tests", stacklevel=1)
    loud.info("logged again")
    assert caplog.messages == ["logged", "logged again"]
    with pytest.raises(ZeroDivisionError), silence("loud", below=logging.ERROR):
        raise ZeroDivisionError
    assert loud.level == logging.INFO
