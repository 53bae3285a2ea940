"""One recipe trained with several seeds, each run tested, and their mean and spread."""

import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graftseg.core.devices import choose_device
from graftseg.core.errors import Code, UserError
from graftseg.core.files import PARTIAL, make_folder, read_json, write_json
from graftseg.core.run_folder import LOCK, SEED, RunFolder
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import check_target as refuse_other_data
from graftseg.data.prepare import prepare
from graftseg.data.sources import Data
from graftseg.data.store import Store, is_store, open_store
from graftseg.evaluation.figures import FIGURES, Figures, Spread, figures_of, format_value, spreads
from graftseg.evaluation.references import stored_references
from graftseg.experiments.scores_ahead import scores_ahead
from graftseg.experiments.seed_counts import check_seeds
from graftseg.experiments.train_and_test import PROTOCOL, Tested, known_run, tested_run, trained_run
from graftseg.inference.predict import select_weights
from graftseg.recipes.recipe import Recipe, changed
from graftseg.recipes.shortening import requested_recipe
from graftseg.training.run import is_complete
from graftseg.training.selection import check_scored

SUMMARY = "summary.json"
OWN = ("recipe", "seeds")
"""What tells a summary of seeds from another file."""
logger = logging.getLogger(__name__)
Tell = Callable[[str], None]


@dataclass(frozen=True)
class SeedResult:
    """One seed: how its checkpoint was chosen and what it reached, None where nothing could be tested.

    ``best`` is what the best checkpoint reached that was kept besides, and ``best_words`` how that one was chosen.
    """

    seed: int
    checkpoint: str
    figures: Figures | None
    best: Figures | None = None
    best_words: str = ""

    def line(self) -> str:
        """The row of this seed."""
        cells = (format_value(self.figures[name]) for name in FIGURES) if self.figures else ("-" for _ in FIGURES)
        besides = f"; Dice {format_value(self.best['dice'])} with the {self.best_words}" if self.best else ""
        return "\t".join([f"seed {self.seed}", *cells, self.checkpoint + besides])


def train_seeds(
    recipe: str | Path | Recipe,
    data: Data,
    out: Path,
    count: int,
    *,
    overrides: Iterable[str] = (),
    shorter: int = 1,
    device: str = "auto",
    tell: Tell = logger.info,
) -> list[SeedResult]:
    """Train with the recipe's seed and the ``count`` - 1 after it, each into ``out/seed-N``, and test each run.

    Runs that have ended are kept, those with other seeds too, and one that was stopped goes on. ``out/summary.json`` is
    written anew after every seed, about all that have ended in ``out``, and ``tell`` gets a row for it. A store without
    labels for its test cases is trained on only. ``shorter`` divides the recipe's lengths.
    """
    choose_device(device)
    check_seeds(count)
    folder = RunFolder(out)
    _check_target(folder, data)
    base = requested_recipe(recipe, overrides, shorter)
    _seeded(base, base.seed + count - 1)
    store = open_store(data) if is_store(data) else _prepared(base, data, folder)
    untested = _why_untested(store)
    if untested:
        tell(f"trained only: {untested}")
    tell("\t".join(["", *FIGURES.values(), "checkpoint"]))
    table = _Table(base, store, folder, device, untested, tell)
    wanted = range(base.seed, base.seed + count)
    ended = table.begin(wanted)
    if not untested and {*wanted} - {*ended}:
        # what could not be tested afterwards is not trained
        scores_ahead(store, PROTOCOL)
    for seed in wanted:
        if seed not in ended:
            trained_run(_seeded(base, seed), store, folder.seed(seed), device)
            table.add(seed)
    if not untested:
        tell(mean_line(table.rows))
    return table.rows


@dataclass
class _Table:
    """The seeds of a folder that have ended: the summary that is written and the rows that are told of them."""

    recipe: Recipe
    store: Store
    folder: RunFolder
    device: str
    untested: str
    tell: Tell
    results: dict[int, SeedResult] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)

    @property
    def rows(self) -> list[SeedResult]:
        """What the seeds reached, in order."""
        return [self.results[seed] for seed in sorted(self.results)]

    def begin(self, wanted: Collection[int]) -> list[int]:
        """Take in what has ended, and return it; of a seed whose network is gone only its known scores are taken."""
        ended = [seed for seed in self.folder.seeds if self._is_complete(seed)]
        for seed in ended:
            self.results[seed] = self._tested(seed)
        self._take_known()
        self._show({*self.results} - ({*wanted} - {*ended}))
        for seed in self.folder.seeds:
            if seed not in {*self.results, *wanted} and _is_lost(run := self.folder.seed(seed)):
                missing = f"{run.weights_file} is missing, and so are its scores on these cases"
                self.tell(f"seed {seed} is left out: {missing}")
        return ended

    def add(self, seed: int) -> None:
        """Test a seed that has ended, and take in those that another process has ended and tested meanwhile."""
        self.results[seed] = self._tested(seed)
        before = {*self.results}
        self._take_known()
        self._show({seed} | ({*self.results} - before))

    def _show(self, seeds: Collection[int]) -> None:
        """Write the summary and tell the rows of these seeds, unless they were told."""
        if self.results:
            _write_summary(self.folder.path / SUMMARY, self.recipe.name, self.rows, self.untested)
        for seed in sorted({*seeds} - self.told):
            self.tell(self.results[seed].line())
        self.told |= {*seeds}

    def _is_complete(self, seed: int) -> bool:
        return is_complete(_seeded(self.recipe, seed), self.store, self.folder.seed(seed))

    def _tested(self, seed: int) -> SeedResult:
        run = self.folder.seed(seed)
        return _result(run, seed, None if self.untested else tested_run(run, self.store, self.device))

    def _take_known(self) -> None:
        """Take in further seeds that have ended, by scores that are there: another process may be testing the rest."""
        for seed in self.folder.seeds:
            if seed not in self.results and (result := self._known(seed)):
                self.results[seed] = result

    def _known(self, seed: int) -> SeedResult | None:
        run = self.folder.seed(seed)
        try:
            if not self._is_complete(seed) and not _is_lost(run):
                return None
            scores = None if self.untested else known_run(run, self.store)
        except UserError as error:
            logger.warning("seed %d is left out: %s", seed, error)
            return None
        return _result(run, seed, scores) if scores or self.untested else None


def _is_lost(run: RunFolder) -> bool:
    """Whether a run has ended and its network is gone."""
    return run.manifest().get("status") == "finished" and not run.weights_file.is_file()


def _seeded(recipe: Recipe, seed: int) -> Recipe:
    return changed(recipe, [f"seed={seed}"])


def mean_line(results: Sequence[SeedResult]) -> str:
    """Mean and standard deviation of each figure over the seeds that were tested."""
    over = _spreads(results)
    return "\t".join(["mean", *(format_value(over[name].mean, over[name].std) for name in FIGURES)])


def _check_target(folder: RunFolder, data: Data) -> None:
    """Several runs go neither into a single one nor among anything else, nor is another's summary written over."""
    out, before = folder.path, folder.path / SUMMARY
    if folder.exists:
        raise UserError(Code.TARGET_EXISTS, out, "holds a single run", "name another --out for several seeds")
    if folder.folds_file.is_file():
        raise UserError(Code.TARGET_EXISTS, out, "holds folds", "name another --out for several seeds")
    if out.resolve() == data.resolve():
        raise UserError(Code.UNSAFE_TARGET, out, "is the data itself", "name another --out")
    content = read_json(before) if before.is_file() else dict.fromkeys(OWN)
    if not isinstance(content, dict) or not {*OWN} <= content.keys():
        raise UserError(Code.OPTION_INVALID, before, "not a summary of seeds", "remove it or name another --out")
    if not (folder.seeds or before.is_file() or _is_free(folder)):
        raise UserError(Code.TARGET_EXISTS, out, "exists and holds no seeds", "name an empty or new folder as --out")


def _is_free(folder: RunFolder) -> bool:
    """Whether nothing is there, or only what attempts to begin left, or a store that was prepared beforehand."""
    if folder.is_free or not folder.path.is_dir():
        return folder.is_free
    entries = [entry for entry in folder.path.iterdir() if not entry.name.startswith(PARTIAL)]
    others = {entry.name for entry in entries if not (SEED.fullmatch(entry.name) and RunFolder(entry).is_free)}
    return others <= {LOCK, folder.store.name} and (LOCK in others or not others or _is_store_or_empty(folder.store))


def _is_store_or_empty(path: Path) -> bool:
    return path.is_dir() and (is_store(path) or not any(path.iterdir()))


def _prepared(recipe: Recipe, data: Data, folder: RunFolder) -> Store:
    """The store in the folder, made from scans; runs that were begun with it keep it as it is."""
    dataset = read_layout(data)
    check_scored(recipe, dataset)
    if folder.seeds and is_store(folder.store):
        refuse_other_data(folder.store, dataset.root, overwrite=False)
        return open_store(folder.store)
    make_folder(folder.path)
    if not (folder.path / LOCK).exists():
        # no attempt made this store: it is the user's, and once the lock is there nothing tells that any more
        refuse_other_data(folder.store, dataset.root, overwrite=False)
    with folder.lock():
        # what an attempt left that was refused is nobody's
        return prepare(dataset, folder.store, recipe.data, overwrite=folder.is_free)


def _why_untested(store: Store) -> str:
    """Why the test cases of a store cannot be scored; nothing where they can."""
    try:
        stored_references(store)
    except UserError as error:
        return f"{error.where}: {error.finding}"
    return ""


def _result(run: RunFolder, seed: int, scores: Tested | None) -> SeedResult:
    chosen = select_weights(run, "shipped").chosen
    if scores is None:
        return SeedResult(seed, chosen, None)
    figures = figures_of(scores.reported)
    if scores.best is None:
        return SeedResult(seed, chosen, figures)
    return SeedResult(seed, chosen, figures, figures_of(scores.best), select_weights(run, "best").chosen)


def _spreads(results: Sequence[SeedResult]) -> dict[str, Spread]:
    return spreads([result.figures for result in results if result.figures is not None])


def _write_summary(path: Path, recipe: str, results: Sequence[SeedResult], untested: str) -> None:
    over = {} if untested else _spreads(results)
    content = {
        "recipe": recipe,
        "protocol": PROTOCOL,
        "untested": untested or None,
        "seeds": [
            {
                "seed": result.seed,
                "checkpoint": result.checkpoint,
                **_plain(result.figures or {}),
                **({"best": {"checkpoint": result.best_words, **_plain(result.best)}} if result.best else {}),
            }
            for result in results
        ],
        "mean": _plain({name: one.mean for name, one in over.items()}),
        "std": _plain({name: one.std for name, one in over.items()}),
    }
    write_json(path, content)


def _plain(values: Figures) -> dict[str, Any]:
    return {name: None if math.isnan(value) else value for name, value in values.items()}
