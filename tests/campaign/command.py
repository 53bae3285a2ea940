"""Commands in this process, with everything that they print."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from graftseg.cli.app import main


@dataclass(frozen=True)
class Printed:
    """Exit code, stdout and stderr of a command. Log messages are on stderr. The exit code of a traceback is -1."""

    code: int
    out: str
    error: str

    @property
    def is_clean(self) -> bool:
        """Whether the command succeeded or ended with a user error."""
        return self.code in (0, 2)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def command(*words: object, terminal: bool = False) -> Printed:
    """Run a command, on a terminal or with stdout and stderr in files."""
    out, error = (_Terminal() if terminal else io.StringIO() for _ in range(2))
    before, sys.argv = sys.argv, ["graftseg", *map(str, words)]
    code = 0
    try:
        with redirect_stdout(out), redirect_stderr(error):
            main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except Exception as failure:
        code = -1
        error.write(f"\nTraceback: {type(failure).__name__}: {failure}")
    finally:
        sys.argv = before
    return Printed(code, out.getvalue(), error.getvalue())
