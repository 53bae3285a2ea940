"""Output of the commands: results on stdout, and errors and warnings on stderr, with --json as JSON."""

import errno
import json
import logging
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import typer

from graftseg.core.errors import Code, StoppedError, UserError, in_one_line, visible
from graftseg.core.progress import hide_progress
from graftseg.core.signals import handling_signals, leave_closed_terminal
from graftseg.core.torchrun import is_first

try:
    from typer.exceptions import TyperException as UsageError
except ModuleNotFoundError:  # before 0.29 typer raised click's exceptions
    from click.exceptions import ClickException as UsageError  # type: ignore[assignment]

RUN_AGAIN = "run the same command again"
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
MAY_DIFFER_BY_RANK = (Code.RANK_LOST, Code.OUT_OF_MEMORY, Code.DAMAGED_FILE, Code.READ_FAILED)
"""Errors that may occur on a single rank, so every rank prints them. Only rank 0 prints other errors."""
_as_json = False


def wants_json(words: Sequence[str]) -> bool:
    """Return whether a command line contains ``--json`` or ``--json=FILE``."""
    options = takewhile(lambda word: word != "--", words)
    return any(word == "--json" or word.startswith("--json=") for word in options)


@contextmanager
def stderr_format(as_json: bool) -> Iterator[None]:
    """Set the format of stderr inside the block: text, or JSON objects without progress bars."""
    global _as_json
    before, _as_json = _as_json, as_json
    hide_progress(as_json)
    handler, repeated = _JsonHandler(logging.WARNING), _RepetitionFilter()
    # without other handlers, logging prints warnings with this one
    last_resort = logging.lastResort or logging.NullHandler()
    last_resort.setFormatter(_VisibleFormatter())
    for each in (handler, last_resort):
        each.addFilter(repeated)
    if as_json:
        logging.captureWarnings(True)
        logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        last_resort.setFormatter(None)
        last_resort.removeFilter(repeated)
        if as_json:
            logging.captureWarnings(False)
        hide_progress(before)
        _as_json = before


class _JsonHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_warning(record.getMessage())


class _RepetitionFilter(logging.Filter):
    """A filter that drops repeated warnings, because a file may be read several times. Tracebacks are always kept.

    Messages are compared before they are formatted, because an error in their format must not stop the command.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, str, str]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        key = record.name, str(record.msg), str(record.args)
        is_new = key not in self.seen or bool(record.exc_info)
        self.seen.add(key)
        return is_new


class _VisibleFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        return in_one_line(record.message)


def say(text: object, *, nl: bool = True) -> None:
    """Print a result to stdout, with hidden characters as escapes. Only rank 0 prints."""
    if is_first():
        typer.echo(visible(str(text)), nl=nl)


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print nested dictionaries and lists as YAML or JSON."""
    if as_json:
        say(json.dumps(facts, indent=2))
        return
    import yaml

    say(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=120), nl=False)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that fits the terminal. Without a terminal, separate the cells by tabs. Only rank 0 prints."""
    if not is_first():
        return
    from rich.console import Console
    from rich.text import Text

    from graftseg.core.text_tables import format_table

    console = Console()
    if not console.is_terminal:
        for row in (head, *rows):
            say("\t".join(map(in_one_line, row)))
        return
    table = format_table(head, rows, console.width)
    for lines, style in ((table.head, "bold"), (table.body, "")):
        for line in lines:
            console.print(Text(line, style=style), soft_wrap=True)


def print_error(error: UserError) -> None:
    """Print an error: ``graftseg: WHERE: FINDING; REMEDY. [CODE]`` or an object with these four fields.

    Only rank 0 prints an error that occurs on all ranks.
    """
    if not is_first() and error.code not in MAY_DIFFER_BY_RANK:
        return
    typer.echo(json.dumps(error.to_json()) if _as_json else f"graftseg: {error}", err=True)


def print_warning(text: str) -> None:
    """Print a warning: ``graftseg: TEXT`` or an object with the field ``warning``."""
    typer.echo(json.dumps({"warning": text}) if _as_json else f"graftseg: {in_one_line(text)}", err=True)


def print_errors(errors: Iterable[UserError]) -> None:
    """Print each distinct error once, because a missing package, for example, causes the same error for every scan."""
    for error in {str(error): error for error in errors}.values():
        print_error(error)


def as_user_error(error: Exception, command: str) -> tuple[UserError, int] | None:
    """Return the UserError and the exit code for an exception, or None if the exception is a bug of this package."""
    if isinstance(error, UserError):
        return error, 2
    if isinstance(error, StoppedError):
        return UserError(Code.INTERRUPTED, command, str(error), error.remedy), 128 + error.signal
    if isinstance(error, UsageError):
        path = getattr(getattr(error, "ctx", None), "command_path", "graftseg")
        finding = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
        where = path.removeprefix("graftseg ")
        return UserError(Code.OPTION_INVALID, where, finding, f"see {path} --help"), error.exit_code
    if isinstance(error, RuntimeError) and isinstance(error.__context__, OSError):
        error = error.__context__  # before Python 3.13, pathlib raises a RuntimeError for a link to itself
    if isinstance(error, PermissionError):
        remedy = "check the permissions of the file and of its folder"
        return UserError(Code.PERMISSION_DENIED, str(error.filename or "a file"), "permission denied", remedy), 2
    if isinstance(error, OSError):
        code = Code.WRITE_FAILED if error.errno in DISK_ERRORS else Code.READ_FAILED
        where, finding = str(error.filename or "a file"), str(error.strerror or error)
        return UserError(code, where, finding, "check the disk and the permissions"), 2
    if isinstance(error, MemoryError):
        remedy = "use a larger machine or smaller scans"
        return UserError(Code.OUT_OF_MEMORY, command, "the memory of this machine is full", remedy), 2
    return None


@contextmanager
def interruptible(command: str) -> Iterator[None]:
    """Print an error on Ctrl-C, SIGTERM or SIGHUP, then raise an exception, so that the block can clean up.

    A second SIGTERM ends the process at once. A second SIGHUP is ignored, because a closed terminal may send two.
    Training replaces these handlers by handlers that save the state first.
    """

    def stop(number: int, frame: object) -> None:
        if number == signal.SIGINT:
            print_error(UserError(Code.INTERRUPTED, command, "interrupted", RUN_AGAIN))
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
        leave_closed_terminal()
        print_error(UserError(Code.INTERRUPTED, command, f"stopped by {signal.Signals(number).name}", RUN_AGAIN))
        raise SystemExit(128 + number)

    with handling_signals(stop):
        yield
