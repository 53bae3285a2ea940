"""Train one recipe with several seeds, test each run, and report mean and standard deviation."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from graftseg.core.errors import UserError
from graftseg.core.files import PARTIAL, write_json
from graftseg.core.run_folder import LOCK, SEED, SEEDS, RunFolder
from graftseg.core.tasks import Executor, Work, open_executor
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import check_target as refuse_other_data
from graftseg.data.prepare import prepare
from graftseg.data.sources import Data
from graftseg.data.store import Store, is_store, open_store
from graftseg.evaluation.references import stored_references
from graftseg.evaluation.table_metrics import METRIC_NAMES, Spread, format_value, mean_metrics, plain_values, spreads
from graftseg.experiments.train_and_test import PROTOCOL, check_seeds, ensure_trained, run_scores
from graftseg.inference.ensemble import select_weights
from graftseg.recipes.recipe import Recipe, changed
from graftseg.recipes.shortening import requested_recipe
from graftseg.training.folds import Report
from graftseg.training.run import is_complete
from graftseg.training.selection import check_scored

SUMMARY = "summary.json"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed."""

    seed: int
    checkpoint: str  # how the reported checkpoint was chosen
    figures: dict[str, float] | None  # metrics of the reported checkpoint, None if the run was not tested
    best: dict[str, float] | None = None  # metrics of the best checkpoint, unless it is the reported checkpoint
    best_checkpoint: str = ""  # how the best checkpoint was chosen

    def line(self) -> str:
        """Return the line of this seed in the printed table."""
        cells = (format_value(self.figures[name]) if self.figures else "-" for name in METRIC_NAMES)
        best = f"; Dice {format_value(self.best['dice'])} with the {self.best_checkpoint}" if self.best else ""
        return "\t".join([f"seed {self.seed}", *cells, self.checkpoint + best])

    def to_json(self) -> dict[str, Any]:
        """Return the entry of this seed in ``summary.json``."""
        best = {"best": {"checkpoint": self.best_checkpoint, **plain_values(self.best)}} if self.best else {}
        return {"seed": self.seed, "checkpoint": self.checkpoint, **plain_values(self.figures or {}), **best}


def train_seeds(
    recipe: str | Path | Recipe,
    data: Data,
    out: Path,
    count: int,
    *,
    overrides: Iterable[str] = (),
    shorter: int = 1,
    device: str = "auto",
    on: str | None = None,
    tell: Report = logger.info,
) -> list[SeedResult]:
    """Train ``count`` runs with consecutive seeds, starting at the recipe's seed, and test each run.

    Each run is written to ``out/seed-N``. Finished runs in ``out`` are kept, including runs of other seeds. A stopped
    run is resumed. After every seed, ``out/summary.json`` is updated and ``tell`` is called with a line of text. If the
    test cases have no labels, or only resampled labels, the runs are not tested. ``shorter`` divides the lengths in the
    recipe, such as numbers of steps. With ``on``, each seed is a task on the Ray cluster ``ray`` or
    ``ray://HOST:PORT``.
    """
    check_seeds(count)
    with open_executor(on) as executor:
        chosen = executor.choose_device(device)
        return _train_seeds(requested_recipe(recipe, overrides, shorter), data, out, count, chosen, executor, tell)


def _train_seeds(
    base: Recipe, data: Data, out: Path, count: int, device: torch.device, executor: Executor, tell: Report
) -> list[SeedResult]:
    folder = RunFolder(out)
    folder.check_not_data(data.resolve())
    if not _is_free(folder):
        folder.check_target(SEEDS, resume=None)
    last = base.seed + count - 1
    _with_seed(base, last)
    store = open_store(data) if is_store(data) else _prepared(base, data, folder)
    untested = _why_untested(store)
    if untested:
        tell(f"training without a test: {untested}")
    tell("\t".join(["", *METRIC_NAMES.values(), "checkpoint"]))
    results: dict[int, SeedResult] = {}

    def add(seed: int) -> None:
        """Test a finished seed, write the summary and print the line of the seed."""
        results[seed] = _result(seed, folder.seed(seed), None if untested else store, str(device))
        write_json(folder.path / SUMMARY, _summary(base.name, results, untested))
        tell(results[seed].line())

    for seed in folder.seeds:
        if is_complete(_with_seed(base, seed), store, folder.seed(seed)):
            add(seed)
    rest = [seed for seed in range(base.seed, last + 1) if seed not in results]
    task = partial(_train_and_test, base, store, folder, str(device), not untested)
    work = Work("Training seeds", (store.path,), (folder.path,), device)
    with executor.running(task, rest, work) as finished:
        for seed, wait in zip(rest, finished, strict=True):
            wait()
            add(seed)
    if not untested:
        statistics = _spreads(results.values())
        tell("\t".join(["mean", *(str(statistics[name]) for name in METRIC_NAMES)]))
    return [results[seed] for seed in sorted(results)]


def _train_and_test(base: Recipe, store: Store, folder: RunFolder, device: str, is_tested: bool, seed: int) -> None:
    ensure_trained(_with_seed(base, seed), store, folder.seed(seed), device)
    if is_tested:
        run_scores(folder.seed(seed), store, device)


def _result(seed: int, run: RunFolder, store: Store | None, device: str) -> SeedResult:
    """Return the result of a finished seed. Without a store, the run is not tested."""
    chosen = select_weights(run, "shipped").chosen
    if store is None:
        return SeedResult(seed, chosen, None)
    reported, best = run_scores(run, store, device)
    if best is None:
        return SeedResult(seed, chosen, mean_metrics(reported))
    return SeedResult(seed, chosen, mean_metrics(reported), mean_metrics(best), select_weights(run, "best").chosen)


def _with_seed(recipe: Recipe, seed: int) -> Recipe:
    return changed(recipe, [f"seed={seed}"])


def _is_free(folder: RunFolder) -> bool:
    """Return whether a folder is empty, or contains only a prepared store or files from a failed start."""
    if folder.is_free or not folder.path.is_dir():
        return folder.is_free
    entries = [entry for entry in folder.path.iterdir() if not entry.name.startswith(PARTIAL)]
    others = {entry.name for entry in entries if not (SEED.fullmatch(entry.name) and RunFolder(entry).is_free)}
    has_store = is_store(folder.store) or (folder.store.is_dir() and not any(folder.store.iterdir()))
    return others <= {LOCK, folder.store.name} and (LOCK in others or not others or has_store)


def _prepared(recipe: Recipe, data: Data, folder: RunFolder) -> Store:
    """Prepare scans into the store of the folder. A store that existing seeds were trained on is reused unchanged."""
    dataset = read_layout(data)
    check_scored(recipe, dataset)
    if folder.seeds and is_store(folder.store):
        refuse_other_data(folder.store, dataset.root, overwrite=False)
        return open_store(folder.store)
    if not (folder.path / LOCK).exists():
        # without a lock file, the user has prepared the store, and it must not be replaced
        refuse_other_data(folder.store, dataset.root, overwrite=False)
    with folder.lock():
        # a store in a folder without runs is from a failed start and may be replaced
        return prepare(dataset, folder.store, recipe.data, overwrite=folder.is_free)


def _why_untested(store: Store) -> str:
    """Return why the test cases of a store cannot be scored, or an empty string."""
    try:
        stored_references(store)
    except UserError as error:
        return f"{error.where}: {error.finding}"
    return ""


def _spreads(results: Iterable[SeedResult]) -> dict[str, Spread]:
    return spreads([result.figures for result in results if result.figures is not None])


def _summary(recipe: str, results: Mapping[int, SeedResult], untested: str) -> dict[str, Any]:
    """Return the content of ``summary.json``."""
    statistics = {} if untested else _spreads(results.values())
    return {
        "recipe": recipe,
        "protocol": PROTOCOL,
        "untested": untested or None,
        "seeds": [results[seed].to_json() for seed in sorted(results)],
        "mean": plain_values({name: spread.mean for name, spread in statistics.items()}),
        "std": plain_values({name: spread.std for name, spread in statistics.items()}),
    }
