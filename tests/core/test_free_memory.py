"""Free memory, and reuse of freed memory."""

import sys
from pathlib import Path

import pytest
import torch

from graftseg.core import memory


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
    monkeypatch.setattr(memory, "_glibc", lambda: libc)
    with pytest.raises(ValueError), memory.reused_memory():
        assert libc.calls == [(-3, 2**30), (-1, 2**30)]
        raise ValueError
    assert libc.calls[2:] == [(0,)]


def test_other_systems_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    with memory.reused_memory():
        pass


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("MemTotal: 99 kB\nMemAvailable:  12 kB\nSwapFree: 7 kB\n", 12 * 1024),
        ("MemTotal: 99 kB\n", sys.maxsize),
        (None, sys.maxsize),
    ],
)
def test_free_memory_of_a_cpu(
    content: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "meminfo"
    if content is not None:
        path.write_text(content)
    monkeypatch.setattr(memory, "Path", lambda name: path)
    assert memory.free_memory(torch.device("cpu")) == expected
