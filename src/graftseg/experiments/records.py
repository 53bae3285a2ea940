"""What a reported run leaves under ``results/``: settings, log, scores, environment; no data, no weights, no paths."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder, check_writable, json_text, read_json, read_object, write_group
from graftseg.core.predictions import Manifest, read_manifest
from graftseg.core.run_folder import LOCK, LOG_REMEDY, RECORD_REMEDY, RunFolder, complete_log
from graftseg.evaluation.comparison import check_comparable, check_same_cases
from graftseg.evaluation.references import TESTED_ON
from graftseg.evaluation.scores import Evaluation, description_file, read_csv
from graftseg.evaluation.statistics import match_case_names
from graftseg.recipes.changes import changes_of, differing
from graftseg.recipes.recipe import Recipe, load_recipe

THINNED = 50
SCORES, BEST, LOG = "metrics", "metrics-best", "log.jsonl"
PARTS = (f"{SCORES}.csv", f"{SCORES}.json", "recipe.yaml", LOG)
"""Files that every record has besides ``run.json``."""
VARIANT = re.compile(r"[A-Za-z0-9][\w.+-]*")
NAME = re.compile(rf"seed-(0|[1-9][0-9]*)(?:-({VARIANT.pattern}))?")
MOST_LETTERS = 100
MOVE = "move the folder elsewhere"
TEST = "test it with graftseg test RUN STORE"


@dataclass(frozen=True)
class Scored:
    """Scores of label maps, and how the checkpoint that made them was chosen.

    ``tested_on`` is what the test cases of the store are known by, where it is told.
    """

    evaluation: Evaluation
    checkpoint: str
    tested_on: str | None = None

    @property
    def chosen(self) -> str:
        """How the checkpoint was chosen, without its step, and the rule for empty masks where it is an unusual one."""
        words = re.sub(r", step \d+", "", self.checkpoint)
        return words if self.evaluation.protocol == "standard" else f"{words}; an empty prediction scores 0"


@dataclass(frozen=True)
class Record:
    """A run as it was recorded, with the steps that it was trained for where it says so.

    ``best`` is the best checkpoint that it kept beside the one that it reports. ``name`` is its folder, ``identity``
    that of the store that it was trained on, and ``settings`` the recipe as it was trained, where that is known.
    """

    recipe: str
    seed: int
    variant: str
    reported: Scored
    best: Scored | None
    steps: int | None = None
    name: str = ""
    identity: str | None = None
    settings: Recipe | None = None

    @property
    def evaluation(self) -> Evaluation:
        """The scores that it reports."""
        return self.reported.evaluation

    @property
    def references(self) -> None:
        """A record names no place."""
        return None


def record_run(run: RunFolder, out: Path | None = None, *, variant: str = "", results: Path = Path("results")) -> Path:
    """Write the record of a run that has ended and was tested, by default into ``results/RECIPE/seed-N[-VARIANT]``.

    The log is thinned to every 50th step and all lines that are no steps. A run that differs from the shipped recipe
    of its name needs a variant, so that no table mixes the two.
    """
    facts = run.training_manifest()
    if facts.get("status") != "finished":
        raise UserError(
            Code.RUN_UNFINISHED, run.path, "the run has not ended", "let the training end, with --resume if it stopped"
        )
    recipe = load_recipe(run.recipe_file)
    folder = out or results / place(recipe, variant)
    variant = _checked_place(folder, recipe, variant)
    refuse_run(folder, run.path)
    refuse_place(folder)
    scores = {SCORES: _tested(run.predictions, facts.get("weights"))}
    changes = changes_of(recipe, scores[SCORES].about["inference"])
    check_variant(run.recipe_file, recipe, changes, variant)
    if (run.predictions_best / "metrics.csv").is_file():
        scores[BEST] = _tested(run.predictions_best, (facts.get("best") or {}).get("sha256"))
    refuse_other(folder, facts)
    check_siblings(folder, recipe, variant)
    reported = Scored(read_csv(scores[SCORES].table), "", scores[SCORES].about.get(TESTED_ON))
    refuse_other_data(
        Record(recipe.name, recipe.seed, variant, reported, None, None, str(run.path), facts["store"]["identity"]),
        folder,
    )
    lines = thinned(complete_log(run.log_file, facts.get("steps"), LOG_REMEDY))
    log = "".join(json.dumps(line) + "\n" for line in lines)
    store = {key: value for key, value in facts["store"].items() if key != "path"}
    known = without_paths({**facts, "store": store})
    files: dict[str, str | bytes] = {
        **{f"{name}.csv": tested.table.read_bytes() for name, tested in scores.items()},
        **{f"{name}.json": json_text(tested.about) for name, tested in scores.items()},
        "recipe.yaml": run.recipe_file.read_bytes(),
        LOG: log,
        "run.json": json_text({**known, "variant": variant, "changes": changes}),
    }
    _write(folder, files)
    return folder


def _write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write the files of a record, or none of them; an older record stays until the new one is wholly on the disk."""
    if not folder.exists():
        with atomic_folder(folder) as partial:
            write_group({partial / name: content for name, content in files.items()})
        return
    older = {f"{BEST}.csv", f"{BEST}.json"} - files.keys()
    write_group({folder / name: content for name, content in files.items()}, [folder / name for name in older])


def read_records(results: Path, recipe: str) -> list[Record]:
    """All records of a recipe, by variant and seed; a folder that holds no part of one is none."""
    records = [read_record(folder, recipe) for folder in sorted((results / recipe).glob("seed-*")) if is_record(folder)]
    return sorted(records, key=lambda record: (record.variant, record.seed))


def is_record(folder: Path) -> bool:
    """Whether a folder holds a record; one that has lost ``run.json``, or has no place in a table, is refused."""
    facts = folder / "run.json"
    for path in (folder, facts):
        if path.is_symlink() and not path.exists():
            raise UserError(
                Code.RECORD_INVALID, path, "a link that leads nowhere", f"mend it, or move {folder} elsewhere"
            )
    if not facts.exists():
        if NAME.fullmatch(folder.name) and any((folder / name).exists() for name in PARTS):
            raise UserError(Code.RECORD_INVALID, facts, "missing from the record", f"{RECORD_REMEDY}, or {MOVE}")
        return False
    if not NAME.fullmatch(folder.name):
        finding = "not the name of a record, which is seed-N or seed-N-VARIANT, with N as 0 or 12 and a plain word"
        raise UserError(Code.RECORD_INVALID, folder, finding, f"{MOVE}, and record the run again")
    if not facts.is_file():
        raise UserError(Code.RECORD_INVALID, facts, "not a file", f"{MOVE}, and record the run again")
    return True


def refuse_unlike(first: Record, second: Record) -> None:
    """Records that are averaged or set side by side must be of the same cases and references."""
    named = match_case_names(first.evaluation, second.evaluation)
    second = replace(second, reported=replace(second.reported, evaluation=named))
    try:
        check_comparable(first, second)
        check_same_cases(first, second)
        _refuse_other_tests(first, second)
    except UserError as error:
        remedy = "move one of the two records elsewhere, or record it under another --variant"
        raise UserError(error.code, error.where, error.finding, remedy) from None


def _refuse_other_tests(first: Record, second: Record) -> None:
    """Test cases of the same names and volumes may still be others; older records do not tell."""
    one, two = first.reported.tested_on, second.reported.tested_on
    if one is not None and two is not None and one != two:
        finding = f"the scans or labels that it was tested on are not those of {first.name}"
        raise UserError(Code.RECORD_INVALID, second.name, finding, "test both runs on the same cases")


def place(recipe: Recipe, variant: str = "") -> PurePosixPath:
    """Where a record lies within ``results``."""
    name = PurePosixPath(recipe.name)
    if name.is_absolute() or not name.parts or ".." in name.parts or not recipe.name.isprintable():
        raise UserError(
            Code.RECORD_INVALID, f"recipe {recipe.name!r}", "its name is no place for a record", "name it like la-8/bcp"
        )
    if variant and not VARIANT.fullmatch(variant):
        raise UserError(
            Code.RECORD_INVALID, f"--variant {variant}", "not one plain word", "use letters, digits and hyphens"
        )
    return name / (f"seed-{recipe.seed}-{variant}" if variant else f"seed-{recipe.seed}")


def thinned(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every 50th step of a log, its last step, and every line that is no step, such as a score."""
    steps = [line for line in lines if "total" in line]
    last = steps[-1] if steps else None
    return [line for line in lines if "total" not in line or line["global_step"] % THINNED == 0 or line is last]


def without_paths(content: Any) -> Any:
    """Plain values without any that names a place on this machine."""
    if isinstance(content, dict):
        return {key: without_paths(value) for key, value in content.items() if not _is_path(value)}
    if isinstance(content, list):
        return [without_paths(value) for value in content if not _is_path(value)]
    return content


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and (Path(value).is_absolute() or value.startswith(("~", "../", "./")))


@dataclass(frozen=True)
class _Tested:
    """A table of scores and what the record says of it."""

    table: Path
    about: dict[str, Any]


def _tested(folder: Path, weights: str | None) -> _Tested:
    """The scores in a folder of label maps; they must be those of the network in question."""
    table = folder / "metrics.csv"
    manifest = read_manifest(folder, "remove the folder and predict again")
    if manifest is None or not table.is_file():
        raise UserError(Code.NOT_TESTED, folder, "the run has not been tested", TEST)
    if manifest.weights != weights:
        raise UserError(Code.PREDICTIONS_MISMATCH, folder, "the label maps are not those of the run's network", TEST)
    if not manifest.is_complete:
        raise UserError(Code.PREDICTIONS_MISMATCH, folder, "some cases have no label map", TEST)
    return _Tested(table, _about(table, manifest))


def _about(table: Path, manifest: Manifest) -> dict[str, Any]:
    evaluation = read_csv(table)
    described = description_file(table)
    known: Mapping[str, Any] = read_json(described) if described.is_file() else {}
    return {
        **without_paths({key: value for key, value in known.items() if key != "references"}),
        "protocol": evaluation.protocol,
        "checkpoint": manifest.checkpoint,
        "cases": len({row.case for row in evaluation.rows}),
        "inference": manifest.inference,
        "weights": manifest.weights,
        "device": manifest.device,
    }


def check_variant(where: str | Path, recipe: Recipe, changes: list[str], variant: str) -> None:
    """Refuse what differs from the shipped recipe and has no variant that says so."""
    if len(variant) > MOST_LETTERS:
        raise UserError(
            Code.RECORD_INVALID,
            f"--variant {variant[:20]}...",
            f"more than {MOST_LETTERS} letters",
            "name a shorter one",
        )
    if changes and not variant:
        finding = f"the run differs from the shipped recipe {recipe.name} ({', '.join(changes)})"
        raise UserError(Code.VARIANT_NEEDED, where, finding, "name the difference with --variant")


def check_siblings(folder: Path, recipe: Recipe, variant: str) -> None:
    """The seeds of a variant are averaged, so they must have been trained alike."""
    for other in _siblings(folder, variant):
        try:
            names = differing(load_recipe(other / "recipe.yaml"), recipe)
        except UserError as error:
            raise UserError(error.code, error.where, error.finding, f"{RECORD_REMEDY}, or remove {other}") from None
        if names:
            finding = f"{other} has the same variant and other settings ({', '.join(names)})"
            raise UserError(Code.VARIANT_NEEDED, folder, finding, "name another --variant")


def refuse_other_data(new: Record, folder: Path) -> None:
    """The seeds of a variant must be scored on the same cases too; a damaged record is told where it is used."""
    for other in _siblings(folder, new.variant):
        try:
            before = read_record(other, new.recipe)
        except UserError:
            continue
        refuse_unlike(before, new)
        if differ([before, new]):
            finding = f"{other} has the same variant and was trained on another store"
            raise UserError(Code.VARIANT_NEEDED, new.name, finding, "name another --variant")


def differ(records: Sequence[Record]) -> bool:
    """Whether some of these were trained on stores that differ, as far as they tell."""
    return len({record.identity for record in records} - {None}) > 1


def _siblings(folder: Path, variant: str) -> Iterator[Path]:
    """Folders of other seeds of the same variant."""
    for other in sorted(folder.parent.glob("seed-*")):
        found = NAME.fullmatch(other.name)
        if other != folder and found and (found.group(2) or "") == variant and (other / "recipe.yaml").is_file():
            yield other


def _checked_place(folder: Path, recipe: Recipe, variant: str) -> str:
    """The variant that a folder is for; a folder where no table would look for this run is refused."""
    found = NAME.fullmatch(folder.name)
    implied = (found.group(2) or "") if found else ""
    expected = place(recipe, variant or implied)
    if PurePosixPath(folder.as_posix()).parts[-len(expected.parts) :] != expected.parts:
        raise UserError(
            Code.RECORD_INVALID, folder, f"not the place of this run, which is {expected}", f"name RESULTS/{expected}"
        )
    return variant or implied


def read_record(folder: Path, recipe: str) -> Record:
    """The record of a recipe in a folder; one that is damaged, or another's, has to be made anew from its run."""
    try:
        record = _read(folder, recipe)
    except UserError as error:
        raise UserError(error.code, error.where, error.finding, RECORD_REMEDY) from None
    _refuse_displaced(folder, record)
    return record


def _refuse_displaced(folder: Path, record: Record) -> None:
    """A record has to say of itself what its place says: recipe, seed and variant."""
    facts, settings = read_object(folder / "run.json"), record.settings
    told = [("run.json", key, facts.get(key)) for key in ("recipe", "seed", "variant")]
    if settings is not None:
        told += [("recipe.yaml", "recipe", settings.name), ("recipe.yaml", "seed", settings.seed)]
    for file, key, value in told:
        expected = getattr(record, key)
        if value is not None and value != expected:
            own = f"the {key} {value}" if value != "" else f"no {key}"
            finding = f"it is of {own}, and lies where {'none' if expected == '' else f'{key} {expected}'} belongs"
            raise UserError(Code.RECORD_INVALID, folder / file, finding, f"{MOVE}, and record the run again")


def _read(folder: Path, recipe: str) -> Record:
    found = NAME.fullmatch(folder.name)
    seed, variant = (int(found.group(1)), found.group(2) or "") if found else (0, "")
    facts = read_object(folder / "run.json")
    reported = _scored(folder, SCORES)
    best = _scored(folder, BEST) if (folder / f"{BEST}.csv").is_file() else None
    if best is None or best.checkpoint == reported.checkpoint:
        best = _reported_is_best(facts, reported)
    steps, store = facts.get("steps"), facts.get("store")
    steps = steps if isinstance(steps, int) else None
    complete_log(folder / LOG, steps, RECORD_REMEDY)
    return Record(
        recipe,
        seed,
        variant,
        reported,
        best,
        steps,
        str(folder),
        store.get("identity") if isinstance(store, dict) else None,
        load_recipe(folder / "recipe.yaml"),
    )


def _reported_is_best(facts: Mapping[str, Any], reported: Scored) -> Scored | None:
    """The scores of the best checkpoint where that is the reported one, which is then tested only once."""
    best = facts.get("best")
    if not isinstance(best, dict) or best.get("sha256") != facts.get("weights"):
        return None
    return replace(reported, checkpoint=f"best on {best.get('on')}, step {best.get('step')}")


def _scored(folder: Path, name: str) -> Scored:
    described = folder / f"{name}.json"
    about = read_json(described)
    if not isinstance(about, dict) or "checkpoint" not in about:
        raise UserError(Code.RECORD_INVALID, described, "does not say which checkpoint was scored", RECORD_REMEDY)
    tested_on = about.get(TESTED_ON)
    return Scored(
        read_csv(folder / f"{name}.csv"), str(about["checkpoint"]), tested_on if isinstance(tested_on, str) else None
    )


ELSEWHERE = "name another folder as --results or --out"


def refuse_place(folder: Path) -> None:
    """Refuse a folder that no record can be written into, before any work is done for it."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if there.exists() and not there.is_dir():
        raise UserError(Code.RECORD_INVALID, there, "not a folder", ELSEWHERE)
    check_writable(folder)
    held = RunFolder(folder)
    if any(path.exists() for path in (held.path / LOCK, held.weights_file, held.checkpoints)):
        raise UserError(Code.UNSAFE_TARGET, folder, "holds a run, over which its record would be written", ELSEWHERE)


def refuse_run(folder: Path, run: Path) -> None:
    """Refuse the folder of a run, and what lies in it, as the place of its record, also before the run is there."""
    if folder.resolve() == run.resolve():
        raise UserError(Code.UNSAFE_TARGET, folder, "the record would be written over the run itself", ELSEWHERE)
    if folder.resolve().is_relative_to(run.resolve()):
        raise UserError(Code.UNSAFE_TARGET, folder, f"the record would lie in the folder of its run, {run}", ELSEWHERE)


def refuse_other(folder: Path, facts: Mapping[str, Any]) -> None:
    """A record is only replaced by that of the same run; one that is damaged, unless it is told to be of another."""
    known = [_weights(folder / name) for name in ("run.json", "metrics.json")]
    told = next((weights for weights in known if weights is not None), None)
    if told not in (None, facts.get("weights")):
        raise UserError(Code.RECORD_INVALID, folder, "holds the record of another run", "remove it or name a --variant")


def _weights(path: Path) -> str | None:
    """The hash of the network that a file of a record tells of, if it can be read and does so."""
    try:
        weights = read_object(path).get("weights")
    except UserError:
        return None
    return weights if isinstance(weights, str) else None
