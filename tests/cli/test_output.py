"""Errors and warnings on stderr, as text and as JSON."""

import json
import logging
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from tiny import tiny_recipe
from typer.main import get_command

from graftseg import api
from graftseg.cli.app import app
from graftseg.cli.output import as_user_error, say, wants_json
from graftseg.core.errors import Code, StoppedError


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_is_an_option_of_every_verb() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    without = [name for name, command in commands.items() if not any("--json" in one.opts for one in command.params)]
    assert len(commands) == 22 and not without


def test_wants_json() -> None:
    assert wants_json(["info", "x", "--json"]) and wants_json(["bench", "x", "--json=figures.json"])
    assert not wants_json(["info", "x"]) and not wants_json(["info", "--", "--json"])


def test_warnings_and_errors_are_json_lines(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def info(what: object) -> dict[str, Any]:
        for _ in range(2):  # printed once
            logging.getLogger("graftseg.test").warning("%d cases are small", 3)
        warnings.warn("a package complains", stacklevel=1)
        raise MemoryError

    monkeypatch.setattr(api, "info", info)
    monkeypatch.setattr(warnings, "filters", [])
    status, out, error = cli("info", "x", "--json")
    first, second, last = json_lines(error)
    assert (status, out, first) == (2, "", {"warning": "3 cases are small"})
    assert "a package complains" in second["warning"]
    assert last["code"] == Code.OUT_OF_MEMORY and {*last} == {"code", "where", "finding", "remedy"}


def test_repeated_tracebacks_and_invalid_messages_are_kept(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def info(what: object) -> dict[str, Any]:
        for finding in ("first", "second"):
            logging.getLogger("server").error("an exception", exc_info=ValueError(finding))
            logging.getLogger("package").warning("3 cases", "without a place in the message")
        return {"name": "data"}

    monkeypatch.setattr(api, "info", info)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    status, out, error = cli("info", "x")
    assert (status, out) == (0, "name: data\n")
    assert "ValueError: first" in error and "ValueError: second" in error


def test_hidden_characters_are_escaped_on_both_streams(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def info(what: object) -> dict[str, Any]:
        record = logging.makeLogRecord({"msg": "case %s", "args": ("\u202e\x1b[2J\nb",), "levelno": logging.WARNING})
        assert logging.lastResort is not None
        logging.lastResort.handle(record)
        return {"name": "5 \u2009mm"}

    monkeypatch.setattr(api, "info", info)
    status, out, error = cli("info", "x")
    assert (status, error) == (0, "case \\u202e\\x1b[2J\\nb\n")
    assert out == "name: 5 \u2009mm\n"
    say("a\x1b[2J\tb\u2066\nc")
    assert capsys.readouterr().out == "a\\x1b[2J\tb\\u2066\nc\n"


def test_several_failures_are_several_objects(cli: CommandLine, scans: Path, tmp_path: Path) -> None:
    api.train(tiny_recipe(stages=[{"method": "supervised", "steps": 1}]), scans, tmp_path / "run", device="cpu")
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.nii.gz").write_bytes(b"rubbish")
    status, _, error = cli("predict", tmp_path / "run", folder, "--out", tmp_path / "out", "--json")
    codes = [line["code"] for line in json_lines(error) if "code" in line]
    assert status == 2 and len(codes) == 2


def test_bench_prints_errors_as_json_and_writes_no_file(cli: CommandLine, tmp_path: Path) -> None:
    status, out, error = cli("bench", "la-8/none", "--json", tmp_path / "figures.json")
    assert (status, out, json.loads(error)["code"]) == (2, "", Code.RECIPE_MISSING)
    assert not [*tmp_path.iterdir()]


def test_a_stopped_training_says_how_to_resume(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object, **options: object) -> None:
        raise StoppedError(signal.SIGTERM, 7)

    monkeypatch.setattr(api, "train", stopped)
    words = ("train", "demo-2d/supervised", "--data", "scans", "--out", "run")
    sentence = (
        "graftseg: train: stopped after step 7; the state is saved; run the same command with --resume. [interrupted]\n"
    )
    assert cli(*words) == (143, "", sentence)
    assert json.loads(cli(*words, "--json")[2])["code"] == Code.INTERRUPTED
    again = json.loads(cli(*words, "--resume", "--json")[2])
    assert (again["code"], again["remedy"]) == (Code.INTERRUPTED, "run the same command again")


@pytest.mark.parametrize(
    ("error", "code", "where"),
    [
        (PermissionError(13, "Permission denied", "scans"), Code.PERMISSION_DENIED, "scans"),
        (OSError(28, "No space left on device", "out"), Code.WRITE_FAILED, "out"),
        (OSError(5, "Input/output error", "scan"), Code.READ_FAILED, "scan"),
        (OSError("unknown"), Code.READ_FAILED, "a file"),
    ],
)
def test_errors_of_the_operating_system(error: OSError, code: Code, where: str) -> None:
    reported = as_user_error(error, "info")
    assert reported is not None and (reported[0].code, reported[0].where, reported[1]) == (code, where, 2)


def test_a_bug_is_not_a_user_error(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_user_error(ZeroDivisionError(), "info") is None
    monkeypatch.setattr(api, "info", lambda what: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli("info", "x")


def test_no_arguments_print_the_help(cli: CommandLine) -> None:
    status, out, error = cli()
    assert (status, out) == (2, "") and "Commands:" in error


def test_a_link_to_itself_is_one_error(cli: CommandLine, tmp_path: Path) -> None:
    for name in ("loop", "loop.yaml"):
        (tmp_path / name).symlink_to(name)
    for words in (("report", tmp_path / "loop"), ("info", tmp_path / "loop.yaml"), ("info", tmp_path / "loop")):
        cli.fails(*words)
