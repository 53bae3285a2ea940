"""Ranks that wait for another rank: communication that ends or fails, and a number in the store that stays the same."""

from datetime import timedelta

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from graftseg.core.heartbeat import KEY, Heartbeat


class Communication:
    """Ends, or fails, after some calls of ``wait``."""

    def __init__(self, calls: int, *, fails: bool = False) -> None:
        self.calls, self.fails = calls, fails

    def wait(self, timeout: timedelta) -> None:
        self.calls -= 1
        if self.calls > 0 or self.fails:
            raise RuntimeError("failed" if self.is_completed() else "timeout")

    def is_completed(self) -> bool:
        return self.calls <= 0


def test_communication_ends_or_fails() -> None:
    heartbeat = Heartbeat(HashStore(), 1, 60)
    heartbeat.wait(Communication(1), 0)
    heartbeat.wait(Communication(3), 0)
    for calls in (1, 3):
        with pytest.raises(RuntimeError, match="failed"):
            heartbeat.wait(Communication(calls, fails=True), 0)


def test_silence_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="hangs"):
        Heartbeat(HashStore(), 1, 0.01).wait(Communication(10**9), 0)


def test_a_rank_counts() -> None:
    store = HashStore()
    with Heartbeat(store, 1, 0.01).beating():
        while store.add(KEY.format(1), 0) < 3:
            pass
    number = store.add(KEY.format(1), 0)
    assert store.add(KEY.format(1), 0) == number
