"""Comparison of a run with another run, case by case."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from graftseg.core.phrases import as_sentence
from graftseg.core.predictions import precisions_of
from graftseg.core.run_folder import RunFolder
from graftseg.evaluation import verdicts
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.statistics import effect_of, paired
from graftseg.evaluation.verdicts import AS_PLANNED, UnlabeledUse
from graftseg.recipes.baseline import SUPERVISED
from graftseg.reporting.missing import Commands, Missing
from graftseg.reporting.rendering import render
from graftseg.reporting.results import NOT_EVALUATED, Results, case_dice, read_results, used_checkpoint
from graftseg.training.unlabeled_use import unlabeled_use


@dataclass(frozen=True)
class EvaluatedRun:
    """A run with its scores."""

    facts: dict[str, Any]  # the manifest of the run
    results: Results | None  # the scores, None if the run has not been evaluated
    use: UnlabeledUse = AS_PLANNED  # how the run used its unlabeled scans

    @classmethod
    def load(cls, run: RunFolder) -> "EvaluatedRun":
        """Load facts and scores from the folder of a run."""
        return cls(run.manifest(), read_results(run.predictions), unlabeled_use(run))

    @property
    def title(self) -> str:
        """Return the name of the recipe or the method."""
        return str(self.facts.get("recipe") or self.facts.get("method") or "run")


def verdict_of(run: EvaluatedRun, baseline: EvaluatedRun | None) -> str | None:
    """Return a sentence on the benefit of the unlabeled scans, or None without an evaluated supervised baseline."""
    if baseline is None or run.results is None or baseline.results is None or not _is_baseline(run, baseline):
        return None
    pair = baseline.results.evaluation, run.results.evaluation
    return as_sentence(verdicts.verdict_between(*pair, use=run.use)) if can_be_paired(*pair) else None


def _is_baseline(run: EvaluatedRun, baseline: EvaluatedRun) -> bool:
    """Return whether ``baseline`` is supervised, ``run`` is not, and both were trained on the same labeled cases."""
    method, baseline_method = (str(evaluated.facts.get("method")) for evaluated in (run, baseline))
    labeled = [evaluated.facts.get("store", {}).get("labeled") for evaluated in (run, baseline)]
    return baseline_method == SUPERVISED and method != SUPERVISED and labeled[0] == labeled[1]


def missed_classes(results: Results | None) -> Iterator[str]:
    """Yield a sentence for each class that the run never finds, or does not predict in some cases."""
    if results is not None:
        yield from (f"{sentence}." for sentence in verdicts.missed_classes("This run", results.evaluation))


def can_be_paired(first: Evaluation, second: Evaluation) -> bool:
    """Return whether two evaluations share a case and a protocol."""
    shared = {row.case for row in first.rows} & {row.case for row in second.rows}
    return bool(shared) and first.protocol == second.protocol


def baseline_dice(results: Results | None, baseline: Results | None) -> dict[str, float] | None:
    """Return the mean Dice of the baseline by case, or None if it cannot be compared with the results."""
    if results is None or baseline is None or not can_be_paired(results.evaluation, baseline.evaluation):
        return None
    return case_dice(baseline.evaluation)


def comparison_section(run: EvaluatedRun, baseline: EvaluatedRun | None, commands: Commands) -> Markup:
    """Render a table of classes: mean Dice of both runs over shared cases, their difference, and cases won and lost.

    Without a baseline or without scores, render the reason and one of the ``commands``.
    """
    if baseline is None or run.results is None or baseline.results is None:
        return render("comparison", empty=_missing(run, baseline, commands))
    folders = [baseline.results.folder, run.results.folder]
    evaluations = [baseline.results.evaluation, run.results.evaluation]
    rows = [pairs for pairs in paired(*evaluations) if pairs.metric == "dice"]
    shared = rows[-1].cases
    if not shared:
        return render("comparison", empty=Missing("The two runs share no evaluated case."))
    is_supervised = run.use.is_supervised_only
    return render(
        "comparison",
        shared=len(shared),
        unshared=sum(len({row.case for row in evaluation.rows}) - len(shared) for evaluation in evaluations),
        rows=[(pairs, effect_of(pairs)) for pairs in rows],
        titles=[baseline.title, run.title],
        columns=["baseline", "this run"] if is_supervised else ["labeled scans only", "with unlabeled scans"],
        is_baseline=_is_baseline(run, baseline),
        protocols=[evaluation.protocol for evaluation in evaluations],
        checkpoints=[used_checkpoint(each.results, each.facts).text for each in (baseline, run)],
        precisions=precisions_of(folders, shared),
    )


def _missing(run: EvaluatedRun, baseline: EvaluatedRun | None, commands: Commands) -> Missing:
    """Return why the comparison is missing, with the command that adds it or a link to this command."""
    if baseline is None and not commands.scores_include_comparison:
        return Missing(commands.reason, *commands.comparison)
    if run.results is None:
        return Missing(commands.reason if baseline is None else NOT_EVALUATED, see_results=True)
    sentence = commands.reason if baseline is None else "The baseline has not been evaluated."
    return Missing(sentence, *commands.scores)
