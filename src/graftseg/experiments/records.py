"""Records: settings, scores and logs of tested runs in ``results/``, without data, weights or paths.

A record is a folder with ``recipe.yaml`` and ``record.json``. The JSON file contains the facts of the run, the scores
of each case, and a thinned log. Records in the older format, folders of five to seven files, can be read as well.
"""

import hashlib
import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder, read_object, write_group, write_json, write_text
from graftseg.core.reading import read_text
from graftseg.core.run_folder import LOCK, RunFolder, read_log, selected_on
from graftseg.evaluation import comparison
from graftseg.evaluation.references import TESTED_ON
from graftseg.evaluation.scores import Evaluation, Row, read_csv
from graftseg.evaluation.table_metrics import null_if_nan
from graftseg.recipes.recipe import Recipe, load_recipe

RECORD, RECIPE = "record.json", "recipe.yaml"
FORMAT = 2
COLUMNS = tuple(column.name for column in fields(Row))
OLDER_FILES = ("run.json", "log.jsonl", "metrics.csv", "metrics.json", "metrics-best.csv", "metrics-best.json")
DERIVED_KEYS = ("rows", "classes", "overall")
"""Keys of ``metrics.json`` that can be computed from the scores of the cases."""
VARIANT = re.compile(r"[A-Za-z0-9][\w.+-]*")
RECORD_NAME = re.compile(rf"seed-(0|[1-9][0-9]*)(?:-({VARIANT.pattern}))?")
LOG_LINES, LOG_EVERY = 200, 50  # maximum length of a thinned log, smallest interval between its steps
Facts = dict[str, Any]


@dataclass(frozen=True)
class Scored:
    """The scores of a checkpoint. ``about`` describes how the checkpoint was chosen and how predictions were made."""

    evaluation: Evaluation
    about: Facts

    @property
    def checkpoint(self) -> str:
        """How the checkpoint was chosen, such as ``best on test, step 400``."""
        return str(self.about["checkpoint"])

    @property
    def selected_on(self) -> str | None:
        """The cases on which the checkpoint was selected, or None if it was not selected by scores."""
        return selected_on(self.about)

    @property
    def tested_on(self) -> str | None:
        """The identity of the test cases, if it was recorded."""
        return self.about.get(TESTED_ON)

    @property
    def chosen(self) -> str:
        """How the checkpoint was chosen, without its step. The rule for empty masks is added unless it is standard."""
        words = re.sub(r", step \d+", "", self.checkpoint)
        return words if self.evaluation.protocol == "standard" else f"{words}; an empty prediction scores 0"


@dataclass(frozen=True)
class Record:
    """A recorded run: its facts, the scores of the reported and of the best checkpoint, and its thinned log."""

    folder: Path
    facts: Facts = field(repr=False)
    reported: Scored = field(repr=False)
    best: Scored | None = field(default=None, repr=False)
    log: Sequence[Facts] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """The path of the folder, for errors and comparisons."""
        return str(self.folder)

    @property
    def recipe(self) -> str:
        """The name of the recipe, such as ``la-8/bcp``."""
        return str(self.facts["recipe"])

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.facts["seed"])

    @property
    def variant(self) -> str:
        """The name for the changes to the shipped recipe; empty without changes."""
        return str(self.facts.get("variant", ""))

    @property
    def steps(self) -> int | None:
        """The number of training steps, if it was recorded."""
        return self.facts.get("steps")

    @property
    def identity(self) -> str | None:
        """The identity of the store that the run was trained on, if it was recorded."""
        identity: str | None = self.facts.get("store", {}).get("identity")
        return identity

    @property
    def evaluation(self) -> Evaluation:
        """The scores of the reported checkpoint."""
        return self.reported.evaluation

    @property
    def scored_run(self) -> comparison.ScoredRun:
        """The scores for a comparison, without the path of the references, which is not recorded."""
        own, weights = self.reported, self.reported.about.get("weights", self.facts.get("weights"))
        training = self.identity, weights, self.steps
        return comparison.ScoredRun(self.name, own.evaluation, own.checkpoint, None, own.tested_on, *training)

    @cached_property
    def settings(self) -> Recipe:
        """The recipe with all settings of the run."""
        return load_recipe(self.folder / RECIPE)

    @property
    def best_checkpoint(self) -> Scored | None:
        """The scores of the best checkpoint, if known. The best checkpoint can also be the reported checkpoint."""
        best = self.facts.get("best")
        if self.best is not None and self.best.checkpoint != self.reported.checkpoint:
            return self.best
        if not best or best["sha256"] != self.facts.get("weights"):
            return None
        words = f"best on {best['on']}, step {best['step']}"
        return replace(self.reported, about=self.reported.about | {"checkpoint": words, "selected_on": best["on"]})


def record_path(recipe: Recipe, variant: str = "") -> PurePosixPath:
    """Return the path of a record relative to ``results``: ``RECIPE/seed-N`` or ``RECIPE/seed-N-VARIANT``."""
    name = PurePosixPath(recipe.name)
    if name.is_absolute() or not name.parts or ".." in name.parts or not recipe.name.isprintable():
        where, finding = f"recipe {recipe.name!r}", "its name is not a valid path"
        raise UserError(Code.RECORD_INVALID, where, finding, "use a name like la-8/bcp")
    if variant and not VARIANT.fullmatch(variant):
        remedy = "use letters, digits and hyphens"
        raise UserError(Code.OPTION_INVALID, f"--variant {variant}", "not a plain word", remedy)
    return name / (f"seed-{recipe.seed}-{variant}" if variant else f"seed-{recipe.seed}")


def read_records(results: Path, recipe: str) -> list[Record]:
    """Read all records of a recipe, sorted by variant and seed."""
    folders = sorted((results / recipe).glob("seed-*"))
    records = [read_record(folder) for folder in folders if is_record(folder)]
    for record in records:
        if record.recipe != recipe:
            finding = f"contains a record of the recipe {record.recipe}"
            raise UserError(Code.RECORD_INVALID, record.folder, finding, f"move it to {record.recipe}")
    return sorted(records, key=lambda record: (record.variant, record.seed))


def is_record(folder: Path) -> bool:
    """Return whether a folder contains a record, in the current or in the older format."""
    return (folder / RECORD).is_file() or _is_older_record(folder)


def read_record(folder: Path) -> Record:
    """Read a record in the current or in the older format. Raise a ``UserError`` if it is damaged."""
    if not is_record(folder):
        raise UserError(Code.RECORD_INVALID, folder, "not a record", "pass a folder written by graftseg record")
    try:
        return _read(folder) if (folder / RECORD).is_file() else _read_older(folder)
    except UserError as error:
        if error.code in (Code.READ_FAILED, Code.PERMISSION_DENIED):
            raise
        raise _damaged(Path(error.where)) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(folder / RECORD) from error


def _damaged(file: Path) -> UserError:
    return UserError(Code.DAMAGED_FILE, file, "damaged or edited", "run graftseg record to recreate the record")


def _read(folder: Path) -> Record:
    content = read_object(folder / RECORD)
    if content.pop("checksum") != _checksum(content, read_text(folder / RECIPE)):
        raise _damaged(folder / RECORD)
    reported, best = (scores and _parse_scores(scores) for scores in (content["scores"], content["best_scores"]))
    return Record(folder, content["run"], reported, best, content["log"])


def write_record(record: Record, recipe: str) -> None:
    """Write a record and its recipe, given as YAML text. Replace an existing record once both files are on the disk."""
    head: Facts = {"format": FORMAT}
    body: Facts = {
        "run": record.facts,
        "scores": _plain_scores(record.reported),
        "best_scores": _plain_scores(record.best) if record.best else None,
        "log": list(record.log),
    }
    content = head | {"checksum": _checksum(head | body, recipe)} | body
    files = {RECIPE: recipe, RECORD: f"{_readable(content)}\n"}
    if record.folder.exists():
        older = (record.folder / name for name in OLDER_FILES)
        write_group({record.folder / name: text for name, text in files.items()}, older)
        return
    with atomic_folder(record.folder) as partial:
        write_group({partial / name: text for name, text in files.items()})


def _checksum(content: Facts, recipe: str) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False) + recipe
    return hashlib.sha256(text.encode()).hexdigest()


def _plain_scores(scored: Scored) -> Facts:
    """Return scores as plain values: the description, the names of the columns, and one list per row."""
    rows = [[null_if_nan(getattr(row, name)) for name in COLUMNS] for row in scored.evaluation.rows]
    return {**scored.about, "protocol": scored.evaluation.protocol, "columns": list(COLUMNS), "rows": rows}


def _parse_scores(content: Facts) -> Scored:
    about = {key: value for key, value in content.items() if key not in ("columns", "rows")}
    values = ([math.nan if cell is None else cell for cell in row] for row in content["rows"])
    rows = tuple(Row(**dict(zip(content["columns"], row, strict=True))) for row in values)
    return Scored(Evaluation(rows, content["protocol"]), about)


def _readable(content: Any, indent: str = "") -> str:
    """Return JSON text with one line for each key of an object and for each row of a table."""
    inner = f"{indent}  "
    if isinstance(content, dict) and content:
        items = [f"{json.dumps(key)}: {_readable(value, inner)}" for key, value in content.items()]
        return "{\n" + ",\n".join(f"{inner}{item}" for item in items) + f"\n{indent}}}"
    if isinstance(content, list) and any(isinstance(item, dict | list) for item in content):
        return "[\n" + ",\n".join(f"{inner}{json.dumps(item)}" for item in content) + f"\n{indent}]"
    return json.dumps(content)


def _is_older_record(folder: Path) -> bool:
    """Return whether a folder contains ``run.json`` and ``metrics.csv``, but no weights or other files of a run."""
    run = RunFolder(folder)
    if not (folder / "metrics.csv").is_file() or not run.manifest_file.is_file():
        return False
    return not any(path.exists() for path in (folder / LOCK, run.weights_file, run.checkpoints, run.predictions))


def _read_older(folder: Path) -> Record:
    run = RunFolder(folder)
    facts, best = read_object(run.manifest_file), folder / "metrics-best.csv"
    reported = _read_older_scores(folder / "metrics.csv", facts)
    best_scores = _read_older_scores(best, facts) if best.is_file() else None
    return Record(folder, facts, reported, best_scores, thinned(read_log(run.log_file)))


def _read_older_scores(table: Path, facts: Facts) -> Scored:
    described = table.with_suffix(".json")
    about = read_object(described) if described.is_file() else {"checkpoint": facts.get("checkpoint", "last")}
    return Scored(read_csv(table), {key: value for key, value in about.items() if key not in DERIVED_KEYS})


def thinned(lines: Sequence[Facts]) -> list[Facts]:
    """Return at most 200 lines of a log: up to 100 lines of scores, the last step, and steps at regular intervals."""
    steps = [line for line in lines if "total" in line]
    scores = [line for line in lines if "total" not in line]
    scores = scores[:: max(1, math.ceil(2 * len(scores) / LOG_LINES))]
    every = LOG_EVERY
    while sum(line["global_step"] % every == 0 for line in steps) >= LOG_LINES - len(scores):
        every += LOG_EVERY
    kept = {id(line) for line in (*scores, *steps[-1:])}
    return [line for line in lines if id(line) in kept or ("total" in line and line["global_step"] % every == 0)]


def without_paths(content: Any) -> Any:
    """Remove strings that are paths of this machine from nested plain values."""
    if isinstance(content, Mapping):
        return {key: without_paths(value) for key, value in content.items() if not _is_path(value)}
    if isinstance(content, list):
        return [without_paths(value) for value in content if not _is_path(value)]
    return content


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and (Path(value).is_absolute() or value.startswith(("~", "../", "./")))


def read_scored(folder: Path) -> comparison.ScoredRun:
    """Read the scores of a record, a run or a folder of label maps, for a comparison."""
    return read_record(folder).scored_run if is_record(folder) else comparison.read_scored_run(folder)


@contextmanager
def as_run_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder with the files of a run: the given folder, or a temporary folder made from a record."""
    if not is_record(folder):
        yield folder
        return
    record = read_record(folder)
    with tempfile.TemporaryDirectory() as temporary:
        run = RunFolder(Path(temporary) / folder.name)
        write_json(run.manifest_file, record.facts)
        write_text(run.recipe_file, read_text(folder / RECIPE))
        write_text(run.log_file, "".join(f"{json.dumps(line)}\n" for line in record.log))
        record.evaluation.save(run.predictions / "metrics.csv", record.reported.about)
        yield run.path
