"""The command line in this process, and the files that it leaves."""

import re
import sys
from pathlib import Path

import pytest

from graftseg.cli.app import main
from graftseg.core.errors import Code
from graftseg.core.files import PARTIAL

SENTENCE = re.compile(r"graftseg: (?P<sentence>[^\n]+: [^\n]*; [^\n]+\.) \[(?P<code>[a-z-]+)\]\n")


class CommandLine:
    """Runs commands and captures their output."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *words: object) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        self._monkeypatch.setattr(sys, "argv", ["graftseg", *map(str, words)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = self._capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    def works(self, *words: object) -> str:
        """Return the stdout of a command that must succeed."""
        code, out, error = self(*words)
        assert code == 0, error
        return out

    def fails(self, *words: object, code: Code | None = None) -> str:
        """Return the one sentence printed for a user error, without its code; check the code if one is given."""
        status, _, error = self(*words)
        assert status == 2, (status, error)
        match = SENTENCE.fullmatch(error)
        assert match is not None and "Traceback" not in error, error
        assert code is None or match["code"] == code, error
        return f"graftseg: {match['sentence']}\n"


def entries(folder: Path) -> set[str]:
    """Return the relative paths of everything below a folder; no temporary file may be left."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert not [name for name in found if PARTIAL in name]
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder by relative path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
