"""What people are told while scans are predicted."""

import pytest

from graftseg.core.progress import ScanProgress, now_and_then, scan_progress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_scans_windows_and_their_rate() -> None:
    clock = Clock()
    meter = ScanProgress(3, clock=clock)
    assert (meter.said, meter.share) == ("0 of 3 scans", 0)
    meter.begin(8)
    meter.tick(4)
    clock.now = 2.0
    assert (meter.said, meter.share) == ("0 of 3 scans, window 4 of 8, 2 windows/s", 0.5)
    meter.tick(4)
    meter.end()
    clock.now = 16.0
    assert (meter.said, meter.share) == ("1 of 3 scans, 0.5 windows/s", 1)


def test_a_line_twice_a_minute_is_enough() -> None:
    clock, lines = Clock(), list[str]()
    meter = ScanProgress(2, now_and_then(lines.append, "Predicting"), clock)
    for second in range(0, 71, 10):
        clock.now = float(second)
        meter.tick(10)
    assert lines == ["Predicting: 0 of 2 scans, 1.25 windows/s"]


def test_nothing_is_said_of_what_is_quick(capsys: pytest.CaptureFixture[str]) -> None:
    with scan_progress(1, "Predicting") as meter:
        meter.begin(2)
        meter.tick(2)
        meter.end()
    assert meter.share == 1
    assert capsys.readouterr() == ("", "")
