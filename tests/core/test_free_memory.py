"""Reuse of freed memory."""

import pytest

from graftseg.core import devices


class FakeLibrary:
    """Records the calls of glibc's functions."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def mallopt(self, name: int, value: int) -> None:
        self.calls.append((name, value))

    def malloc_trim(self, kept: int) -> None:
        self.calls.append((kept,))


def test_memory_is_kept_inside_the_block_and_returned_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = FakeLibrary()
    monkeypatch.setattr(devices, "_glibc", lambda: libc)
    with pytest.raises(ValueError), devices.reused_memory():
        assert libc.calls == [(-3, 2**30), (-1, 2**30)]
        raise ValueError
    assert libc.calls[2:] == [(0,)]


def test_other_systems_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_glibc", lambda: None)
    with devices.reused_memory():
        pass
