"""The trials that a table asks for, one for each seed of each of its recipes, and what there is of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.experiments.paper import ALL, TABLES, benchmark_of
from graftseg.experiments.records import NAME, check_variant, is_record, place, read_record
from graftseg.experiments.tables import rows_of
from graftseg.recipes.changes import changes_of, differing
from graftseg.recipes.reading import suggest
from graftseg.recipes.recipe import Recipe, changed, load_recipe
from graftseg.recipes.shortening import requested_recipe

FEW = 12
"""Rows that can all be told in a sentence."""

ROW = ("name", "published")
"""Settings that say which row of a table a recipe is."""


@dataclass(frozen=True)
class Trial:
    """One seed of one row: its recipe, with the seed in it, and where its run and its record lie."""

    recipe: Recipe
    run: RunFolder
    record: Path

    @property
    def name(self) -> str:
        """Recipe, seed and variant, in words."""
        found = NAME.fullmatch(self.record.name)
        variant = found.group(2) if found else None
        return f"{self.recipe.name}, seed {self.recipe.seed}" + (f", {variant}" if variant else "")

    @property
    def benchmark(self) -> str:
        """The data set that it is trained on."""
        return benchmark_of(self.recipe.name)

    @property
    def is_recorded(self) -> bool:
        """Whether its record is there, whole."""
        return (self.record / "run.json").is_file() and not self.damage

    @cached_property
    def damage(self) -> str:
        """What is wrong with its record, in words; empty where there is none."""
        try:
            if is_record(self.record):
                read_record(self.record, self.recipe.name)
        except UserError as error:
            return f"{Path(error.where).name}: {error.finding}"
        return ""

    @property
    def state(self) -> str:
        """What there is of it, in words."""
        if self.is_recorded:
            return "recorded" + (f" with other settings ({', '.join(self.changes)})" if self.changes else "")
        before = f"record damaged ({self.damage}), " if self.damage else ""
        return before + self._progress

    @property
    def _progress(self) -> str:
        """How far its run is, in words."""
        if not self.run.exists:
            return "to be trained"
        try:
            finished = self.run.manifest().get("status") == "finished"
        except UserError as error:
            return str(error)
        return "trained, to be tested and recorded" if finished else "begun, to go on"

    @property
    def is_trained(self) -> bool:
        """Whether its training has ended and its network is there."""
        try:
            return (
                self.run.exists and self.run.manifest().get("status") == "finished" and self.run.weights_file.is_file()
            )
        except UserError:
            # its state says what is wrong with the run
            return False

    @property
    def changes(self) -> list[str]:
        """Settings in which its record differs from what would be trained now."""
        return differing(load_recipe(self.record / "recipe.yaml"), self.recipe)

    @property
    def is_lost(self) -> bool:
        """Whether its record is damaged and its run is gone: another training would end with other weights."""
        return bool(self.damage) and not self.run.exists


def chosen(name: str, only: Iterable[str]) -> list[str]:
    """Recipes of a table, each once: the paper's rows, or those that are asked for."""
    names = list(TABLES) if name.lower() == ALL else [name.lower()]
    known = list(dict.fromkeys(row.recipe for one in names for row in rows_of(one)))
    patterns = list(only)
    for pattern in patterns:
        if not any(fnmatchcase(recipe, pattern) for recipe in known):
            raise UserError(
                Code.UNKNOWN_NAME, f"--only {pattern}", f"no row of table {name}", _choice(name, pattern, known)
            )
    if patterns:
        return [recipe for recipe in known if any(fnmatchcase(recipe, pattern) for pattern in patterns)]
    return list(dict.fromkeys(row.recipe for one in names for row in TABLES[one].rows))


def _choice(name: str, pattern: str, known: list[str]) -> str:
    """What may be asked for; of many rows, the one that is likely meant."""
    if len(known) <= FEW:
        return f"choose among {', '.join(known)}"
    meant = suggest(pattern, known)
    return f"see those of graftseg sweep {name} --dry-run" + (f" ({meant})" if meant else "")


def refuse_another_row(overrides: Iterable[str]) -> None:
    """Refuse to record a row under the name of another, or beside other published figures."""
    for override in overrides:
        name = override.partition("=")[0].partition(".")[0].strip()
        if name in ROW:
            remedy = "leave it out, and name other rows with --only"
            raise UserError(
                Code.UNKNOWN_NAME,
                f"--set {override}",
                f"{name} says which row it is, and no row becomes another",
                remedy,
            )


def bases_of(
    recipes: Iterable[str], overrides: list[str], shorter: int, variant: str, failures: dict[str, str]
) -> list[Recipe]:
    """The recipes with these overrides; one that cannot be had is a failure, and overrides for none are refused."""
    refuse_another_row(overrides)
    bases: list[Recipe] = []
    errors: list[UserError] = []
    for name in recipes:
        try:
            bases.append(requested_recipe(name, overrides, shorter))
        except UserError as error:
            errors.append(error)
            failures[name] = f"{error.finding} ({error.where})"
            continue
        check_variant(f"recipe {name}", bases[-1], changes_of(bases[-1]), variant)
    if errors and not bases and errors[0].where.startswith("--shorter"):
        raise errors[0]
    if overrides and not bases and len({error.finding for error in errors}) == 1:
        given = " ".join(f"--set {one}" for one in overrides)
        rows = f", in every one of the {len(errors)} rows" if len(errors) > 1 else ""
        raise UserError(errors[0].code, given, errors[0].finding + rows, "correct the setting")
    return bases


def trials_of(bases: Iterable[Recipe], out: Path, results: Path, seeds: int, variant: str) -> Iterator[Trial]:
    """All seeds of all recipes."""
    for base in bases:
        for seed in range(base.seed, base.seed + seeds):
            recipe = changed(base, [f"seed={seed}"])
            where = place(recipe, variant)
            yield Trial(recipe, RunFolder(out / where), results / where)
