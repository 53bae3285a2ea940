"""The rows of a table, one after the other: train, predict, evaluate, record; what is done is passed over."""

import gc
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from graftseg.core.devices import choose_device
from graftseg.core.errors import StoppedError, UserError
from graftseg.core.files import make_folder
from graftseg.data.store import Store
from graftseg.evaluation.figures import FIGURES, figures_of, format_value
from graftseg.experiments.preflight import Tell, foreseen, refuse_misfits, refuse_target, unlike_others
from graftseg.experiments.records import check_siblings, record_run
from graftseg.experiments.seed_counts import check_seeds
from graftseg.experiments.stores import Stores, stores_of
from graftseg.experiments.train_and_test import tested_run, trained_run
from graftseg.experiments.trials import Trial, bases_of, chosen, trials_of
from graftseg.recipes.shortening import check_shorter

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Swept:
    """What a sweep did: names of the trials that were recorded before and now, and why each of the others failed.

    ``otherwise`` are those whose record is of other settings, which nothing was done for.
    """

    before: tuple[str, ...]
    recorded: tuple[str, ...]
    failures: dict[str, str]
    otherwise: tuple[str, ...] = ()


def sweep(
    name: str,
    data: Stores = None,
    out: str | Path = "runs",
    *,
    results: str | Path = "results",
    seeds: int = 1,
    only: Iterable[str] = (),
    overrides: Iterable[str] = (),
    shorter: int = 1,
    variant: str = "",
    device: str = "auto",
    dry_run: bool = False,
    tell: Tell = logger.info,
) -> Swept:
    """Run what is missing of a table, or of ``all``: each row with its seed and the ``seeds`` - 1 after it.

    ``data`` is a prepared store, or stores by the name of their data set. Runs lie below ``out`` as their records do
    below ``results``. ``only`` takes names of recipes, or patterns of them, also of those that the paper has no row
    for. ``shorter`` divides the lengths of every row, see ``recipes.shortening``. A row that fails is told and the
    others go on; a ``StoppedError`` ends the sweep, and the same call goes on.
    """
    on_gpu = choose_device(device).type == "cuda"
    failures: dict[str, str] = {}
    check_shorter(shorter)
    check_seeds(seeds)
    bases = bases_of(chosen(name, only), list(overrides), shorter, variant, failures)
    trials = list(trials_of(bases, Path(out), Path(results), seeds, variant))
    missing = [trial for trial in trials if not trial.is_recorded]
    for trial in trials:
        refuse_target(trial, dry_run)
    others = [trial for trial in trials if trial.is_recorded and trial.changes]
    before = tuple(trial.name for trial in trials if trial.is_recorded and not trial.changes)
    for one, why in failures.items():
        tell(f"{one}: failed: {why}")
    recorded: list[str] = []
    if dry_run:
        failures |= foreseen(trials, data, variant, tell)
    else:
        for trial in others:
            tell(f"{trial.name}: {trial.state}; name another --variant, or remove {trial.record}")
        stores = stores_of(data, {trial.benchmark for trial in missing})
        refuse_misfits(missing, stores)
        unlike = unlike_others(missing, stores, variant)
        for one, why in unlike.items():
            tell(f"{one}: failed: {why}")
        failures |= unlike
        for folder in (Path(out), Path(results)) if missing else ():
            make_folder(folder)
        for index, trial in enumerate(alike := [trial for trial in missing if trial.name not in unlike]):
            tell(f"{trial.name} ({index + 1} of {len(alike)}): {trial.state}")
            if _succeeds(trial, stores[trial.benchmark], Path(results), variant, device, tell, failures):
                recorded.append(trial.name)
            if on_gpu:
                _forget()
    swept = Swept(before, tuple(recorded), failures, tuple(trial.name for trial in others))
    tell(_told(swept, left=len([trial for trial in missing if trial.name not in failures]) if dry_run else 0))
    return swept


def _succeeds(
    trial: Trial, store: Store, results: Path, variant: str, device: str, tell: Tell, failures: dict[str, str]
) -> bool:
    """Take a trial to its record and tell what it reached, or why it did not."""
    try:
        check_siblings(trial.record, trial.recipe, variant)
        trained_run(trial.recipe, store, trial.run, device)
        figures = figures_of(tested_run(trial.run, store, device).reported)
        record_run(trial.run, None, variant=variant, results=results)
    except StoppedError:
        raise
    except Exception as error:
        failures[trial.name] = _reason(error)
        tell(f"{trial.name}: failed: {failures[trial.name]}")
        return False
    tell(f"{trial.name}: " + ", ".join(f"{FIGURES[key]} {format_value(figures[key])}" for key in FIGURES))
    return True


def _reason(error: Exception) -> str:
    """Why a row failed; what no user can have done is told in full."""
    if isinstance(error, UserError):
        return str(error)
    logger.error("a row failed", exc_info=error)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _forget() -> None:
    """Give back what a training left on the GPU: compiled code, of which there may only be so much, and memory."""
    import torch

    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()


def _told(swept: Swept, left: int) -> str:
    counts = {
        "recorded before": len(swept.before),
        "recorded now": len(swept.recorded),
        "to do": left,
        "failed": len(swept.failures),
    }
    others = {"recorded with other settings": len(swept.otherwise)} if swept.otherwise else {}
    return ", ".join(f"{count} {words}" for words, count in (counts | others).items())
