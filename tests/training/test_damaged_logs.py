"""An incomplete log is reported once by every command that reads a run or its record."""

import json
import shutil
from pathlib import Path

import pytest
import tiny
from command_line import CommandLine

from graftseg.core.errors import Code
from graftseg.core.files import read_json
from graftseg.core.reading import read_bytes
from graftseg.data.store import Store
from graftseg.experiments.seeds import train_seeds

RECIPE = tiny.tiny_recipe(name="la-8/bcp", stages=[{"method": "supervised", "steps": 3}])
STEP = b'{"global_step": 3, "total": 0.5}\n'
DAMAGES = [
    (None, "the file is missing"),
    (STEP[:-1], "ends at step 0"),
    (STEP.replace(b"3", b"2") + b'{"global_step": 3, "validation": {}}\n', "ends at step 2"),
    (b"total\n" + STEP, "damaged"),
    (STEP + STEP.replace(b"total", b"\xff"), "damaged"),
    (b"[]\n", "damaged"),
    (STEP.replace(b"0.5", b"1e309"), "damaged"),
    (STEP.replace(b"0.5", b"NaN"), "damaged"),
    (STEP.replace(b"0.5", b"9" * 400), "damaged"),
]


@pytest.fixture(scope="module")
def made(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tested runs; tests do not change them."""
    folder = tmp_path_factory.mktemp("made")
    train_seeds(RECIPE, store.path, folder / "runs", 2, device="cpu")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(made, tmp_path / "made"))


def write(log: Path, content: bytes | None) -> None:
    log.unlink()
    if content is not None:
        log.write_bytes(content)


@pytest.mark.parametrize(("content", "finding"), DAMAGES)
def test_a_run_with_a_damaged_log_is_not_recorded(
    cli: CommandLine, folder: Path, content: bytes | None, finding: str
) -> None:
    run, results = folder / "runs/seed-0", folder / "others"
    write(run / "log.jsonl", content)
    sentence = cli.fails("record", run, "--results", results, "--variant", "tiny", code=Code.DAMAGED_FILE)
    assert f"{run / 'log.jsonl'}: " in sentence and finding in sentence
    assert not results.exists()


def test_every_command_gives_the_same_advice(cli: CommandLine, folder: Path, store: Store) -> None:
    run = folder / "runs/seed-0"
    write(run / "log.jsonl", b"[]\n")
    sentence = cli.fails("report", run, code=Code.DAMAGED_FILE)
    facts = read_json(run / "run.json")
    (run / "run.json").write_text(json.dumps(facts | {"status": "stopped"}))
    again = ("train", run / "recipe.yaml", "--data", store.path, "--out", run, "--device", "cpu", "--resume")
    assert cli.fails(*again) == sentence


@pytest.mark.parametrize("step", [b'"stage": NaN', b'"stage": -Infinity', b'"stage": 1e309', b'"total": ' + b"9" * 310])
def test_a_report_of_a_log_with_impossible_numbers(cli: CommandLine, folder: Path, step: bytes) -> None:
    run = folder / "runs/seed-0"
    write(run / "log.jsonl", STEP.replace(b"}", b", " + step + b"}"))
    assert "log.jsonl" in cli.fails("report", run, code=Code.DAMAGED_FILE)


def test_a_recipe_with_an_endless_alias(cli: CommandLine, folder: Path) -> None:
    run = folder / "runs/seed-0"
    (run / "recipe.yaml").write_text("name: &a [*a]\n")
    assert "recipe.yaml" in cli.fails("report", run, code=Code.DAMAGED_FILE)


def test_the_log_of_a_running_training_may_end_within_a_line(cli: CommandLine, folder: Path) -> None:
    run = folder / "runs/seed-0"
    facts = read_json(run / "run.json")
    (run / "run.json").write_text(json.dumps(facts | {"status": "training"}))
    write(run / "log.jsonl", STEP + STEP[:20])
    cli.works("report", run)
    write(run / "log.jsonl", b"{\n" + STEP)
    assert "log.jsonl" in cli.fails("report", run, code=Code.DAMAGED_FILE)


def test_label_maps_and_records_of_the_demo_have_no_log(cli: CommandLine, folder: Path) -> None:
    one, two = (folder / f"runs/seed-{seed}/predictions" for seed in (0, 1))
    assert "first: " in cli.works("compare", one, two)
    kept = Path(__file__).parents[2] / "results" / "demo-2d"
    assert "first: " in cli.works("compare", kept / "supervised", kept / "bcp")


def test_a_log_that_cannot_be_opened_is_reported(
    cli: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, read = folder / "runs/seed-0", read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "log.jsonl":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr("graftseg.core.run_folder.read_bytes", refuse)
    assert "log.jsonl" in cli.fails("report", run, code=Code.PERMISSION_DENIED)
