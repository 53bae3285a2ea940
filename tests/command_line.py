"""The command line in this process, with what it left behind, for tests of what goes wrong."""

import re
import sys
from pathlib import Path

import pytest

from graftseg.cli.app import main
from graftseg.core.errors import Code
from graftseg.core.files import PARTIAL

SENTENCE = re.compile(r"graftseg: (?P<sentence>[^\n]+: [^\n]*; [^\n]+\.) \[(?P<code>[a-z-]+)\]\n")


class CommandLine:
    """Calls the command line as a person does."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *words: object) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._monkeypatch.setattr(sys, "argv", ["graftseg", *map(str, words)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = self._capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    def works(self, *words: object) -> str:
        """Standard output of a command that must do well."""
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
    """Everything below a folder, by its place; nothing in it may be half-written."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert not [name for name in found if PARTIAL in name]
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
