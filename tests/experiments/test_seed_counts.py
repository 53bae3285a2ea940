"""More seeds than anybody trains are refused by every command that takes a number of them, before anything is done."""

from pathlib import Path

import pytest
from command_line import CommandLine


@pytest.mark.parametrize("count", [101, 10**9])
@pytest.mark.parametrize("command", ["train demo-2d/supervised --data scans", "sweep la", "sweep la --dry-run", "demo"])
def test_more_than_a_hundred_seeds_are_refused(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, count: int
) -> None:
    monkeypatch.chdir(tmp_path)
    said = cli.fails(*command.split(), "--out", "out", "--device", "cpu", "--seeds", count)
    assert said == f"graftseg: --seeds {count}: more than 100 seeds of a recipe; name fewer.\n"
    assert not any(tmp_path.iterdir())
