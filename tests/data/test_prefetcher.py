"""The prefetching thread: items in order, a limited number in advance, and no thread left behind."""

import gc
import threading
from collections.abc import Iterator
from time import monotonic, sleep

import pytest

from graftseg.core.errors import Code, UserError
from graftseg.data.disk_batches import Prefetcher


class Maker:
    """Squares numbers and lists the numbers it squared."""

    def __init__(self, ahead: int = 2) -> None:
        self.made: list[int] = []
        self.prefetcher: Prefetcher[int, int] = Prefetcher(self.make, lambda number: number + 1, ahead=ahead)

    def make(self, number: int) -> int:
        if number == 13:
            raise UserError(Code.OPTION_INVALID, "number 13", "brings bad luck", "take another")
        self.made.append(number)
        return number**2


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("graftseg batches")]


def wait_for_threads_to_end(timeout: float = 5.0) -> None:
    end = monotonic() + timeout
    while threads() and monotonic() < end:
        sleep(0.001)
    assert not threads()


def settled(maker: Maker, count: int) -> list[int]:
    """Wait until ``count`` items are finished, then a short time, and return all finished items."""
    end = monotonic() + 5
    while len(maker.made) < count and monotonic() < end:
        sleep(0.001)
    sleep(0.02)
    return maker.made


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    gc.collect()
    wait_for_threads_to_end()
    yield
    gc.collect()
    wait_for_threads_to_end()


def test_items_come_in_order() -> None:
    maker = Maker()
    assert not threads(), "no thread runs before the first request"
    assert [maker.prefetcher.get(number) for number in range(10)] == [number**2 for number in range(10)]
    assert len(threads()) == 1


@pytest.mark.parametrize("ahead", [1, 3])
def test_at_most_room_items_are_made_in_advance(ahead: int) -> None:
    maker = Maker(ahead)
    assert maker.prefetcher.get(0) == 0
    assert settled(maker, ahead + 1) == list(range(ahead + 1))
    assert maker.prefetcher.get(1) == 1
    assert settled(maker, ahead + 2) == list(range(ahead + 2))


def test_a_request_out_of_order_restarts_the_thread() -> None:
    maker = Maker()
    asked = [0, 1, 7, 8, 8, 2, 3, 9]
    assert [maker.prefetcher.get(number) for number in asked] == [number**2 for number in asked]
    maker.prefetcher.stop()
    assert maker.prefetcher.get(10) == 100, "a request after stop starts a new thread"


def test_an_error_is_raised_when_its_item_is_requested() -> None:
    maker = Maker(ahead=5)
    assert [maker.prefetcher.get(number) for number in (11, 12)] == [121, 144]
    for _ in range(2):
        with pytest.raises(UserError, match="number 13"):
            maker.prefetcher.get(13)
    assert maker.prefetcher.get(14) == 196


def test_an_error_of_an_unrequested_item_is_not_raised() -> None:
    maker = Maker(ahead=5)
    assert maker.prefetcher.get(12) == 144
    assert maker.prefetcher.get(2) == 4


def test_the_thread_ends_with_the_object() -> None:
    maker = Maker()
    maker.prefetcher.get(0)
    assert threads()
    del maker
    wait_for_threads_to_end()


def test_the_thread_ends_when_it_is_stopped() -> None:
    maker = Maker()
    maker.prefetcher.get(0)
    maker.prefetcher.stop()
    wait_for_threads_to_end()
    maker.prefetcher.stop()
