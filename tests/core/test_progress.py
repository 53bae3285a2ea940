"""Work in a few threads, and progress only where someone looks."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from graftseg.core import progress as console
from graftseg.core.progress import in_parallel, track


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def test_results_come_in_the_order_of_the_items() -> None:
    second_done = Event()

    def work(item: int) -> int:
        if item == 0:
            assert second_done.wait(10)
        second_done.set()
        return item * item

    assert in_parallel(work, range(5), "squaring", workers=2) == [0, 1, 4, 9, 16]


def test_nothing_to_do() -> None:
    assert in_parallel(str, [], "nothing") == []


def test_after_a_failure_no_further_item_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    cancelled = Event()

    class Pool(ThreadPoolExecutor):
        """Lets the item in hand go on only when the others are cancelled."""

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            cancelled.set()
            super().shutdown(wait=wait)

    def work(item: int) -> int:
        begun.append(item)
        if item == 2:
            raise ValueError("item 2 is bad")
        assert item < 2 or cancelled.wait(10)
        return item

    monkeypatch.setattr(console, "ThreadPoolExecutor", Pool)
    with pytest.raises(ValueError, match="item 2 is bad"):
        in_parallel(work, range(100), "failing", workers=1)
    assert begun in ([0, 1, 2], [0, 1, 2, 3])


def test_without_a_terminal_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(iter("abc"), "letters", total=3)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_a_line_tells_now_and_then_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "monotonic", iter([0.0, 10.0, 31.0, 31.0, 50.0, 62.0, 62.0]).__next__)
    assert list(track(iter("abcd"), "letters", total=4)) == ["a", "b", "c", "d"]
    assert capsys.readouterr() == ("", "letters: 1 of 4\nletters: 3 of 4\n")


def test_on_a_terminal_the_bar_keeps_to_the_error_stream(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    assert list(track(iter("abc"), "letters", total=3)) == ["a", "b", "c"]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "letters" in captured.err and "3/3" in captured.err
