"""A thread that works ahead: in order, no further than it may, and never longer than it is needed."""

import gc
import threading
from collections.abc import Iterator
from time import monotonic, sleep

import pytest

from graftseg.core.errors import Code, UserError
from graftseg.data.disk_batches import Prefetcher


class Maker:
    """Makes the square of a number, and notes what it made."""

    def __init__(self, room: int = 2) -> None:
        self.made: list[int] = []
        self.ahead: Prefetcher[int, int] = Prefetcher(self.make, lambda number: number + 1, room=room)

    def make(self, number: int) -> int:
        if number == 13:
            raise UserError(Code.OPTION_INVALID, "number 13", "brings bad luck", "take another")
        self.made.append(number)
        return number**2


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "graftseg batches"]


def wait_until_none_is_left(timeout: float = 5.0) -> None:
    end = monotonic() + timeout
    while threads() and monotonic() < end:
        sleep(0.001)
    assert not threads()


def settled(maker: Maker, count: int) -> list[int]:
    """What was made once so many are, and a while later."""
    end = monotonic() + 5
    while len(maker.made) < count and monotonic() < end:
        sleep(0.001)
    sleep(0.02)
    return maker.made


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    gc.collect()
    wait_until_none_is_left()
    yield
    gc.collect()
    wait_until_none_is_left()


def test_items_come_in_the_order_in_which_they_are_asked_for() -> None:
    maker = Maker()
    assert not threads(), "nothing runs before something is asked for"
    assert [maker.ahead.get(number) for number in range(10)] == [number**2 for number in range(10)]
    assert len(threads()) == 1 and threads()[0].daemon


@pytest.mark.parametrize("room", [1, 3])
def test_no_more_is_made_ahead_than_there_is_room_for(room: int) -> None:
    maker = Maker(room)
    assert maker.ahead.get(0) == 0
    assert settled(maker, room + 1) == list(range(room + 1))
    assert maker.ahead.get(1) == 1
    assert settled(maker, room + 2) == list(range(room + 2))


def test_another_request_than_the_next_begins_anew() -> None:
    maker = Maker()
    asked = [0, 1, 7, 8, 8, 2, 3, 9]
    assert [maker.ahead.get(number) for number in asked] == [number**2 for number in asked]
    maker.ahead.stop()
    assert maker.ahead.get(10) == 100, "a stopped one goes on when it is asked"


def test_an_error_is_raised_where_its_item_is_asked_for() -> None:
    maker = Maker(room=5)
    assert [maker.ahead.get(number) for number in (11, 12)] == [121, 144]
    for _ in range(2):
        with pytest.raises(UserError, match="number 13"):
            maker.ahead.get(13)
    assert maker.ahead.get(14) == 196


def test_an_error_that_is_never_asked_for_is_never_raised() -> None:
    maker = Maker(room=5)
    assert maker.ahead.get(12) == 144
    assert maker.ahead.get(2) == 4


def test_the_thread_ends_with_the_object() -> None:
    maker = Maker()
    maker.ahead.get(0)
    assert threads()
    del maker
    wait_until_none_is_left()


def test_the_thread_ends_when_it_is_stopped() -> None:
    maker = Maker()
    maker.ahead.get(0)
    maker.ahead.stop()
    wait_until_none_is_left()
    maker.ahead.stop()
