"""Notices at the top of a report: network for prediction, continued training, checks of the teacher, warnings."""

from dataclasses import dataclass

from graftseg.core.phrases import as_sentence, counted
from graftseg.core.run_folder import RunFolder, fold_count
from graftseg.evaluation.table_metrics import format_value, mean_metrics
from graftseg.reporting.results import Results
from graftseg.training.learning_check import warnings_in


@dataclass(frozen=True)
class Notice:
    """A sentence with a title. A warning is highlighted on the page."""

    title: str
    sentence: str
    is_warning: bool = False


def notices_of(run: RunFolder) -> list[Notice]:
    """Return the notices of a run, or those of a cross-validation and all of its folds."""
    shipped = run.shipped()
    notices = [] if shipped is None else [Notice("Network for prediction", as_sentence(shipped.sentence))]
    manifest = run.manifest() if run.exists else {}
    if origin := manifest.get("continued_from"):
        labels = counted(len(origin["new_labels"]), "new label")
        notices.append(Notice("Continued training", f"Started from the network of {origin['run']}, with {labels}."))
    if gain := manifest.get("gain"):
        notices.append(Notice("Gain", as_sentence(str(gain["sentence"]))))
    for member, suffix in [(run.fold(n), f", fold {n}") for n in range(fold_count(run))] or [(run, "")]:
        for check in member.teacher_checks():
            is_warning = check.decision in ("skip", "stop")
            notices.append(Notice(f"Check of unlabeled scans{suffix}", as_sentence(check.sentence), is_warning))
        warnings = map(str, warnings_in(member.manifest()))
        notices += [Notice(f"Warning{suffix}", as_sentence(warning), is_warning=True) for warning in warnings]
    return notices


def network_note(run: RunFolder, results: Results | None, baseline: Results | None) -> str:
    """Return a sentence on whether ``predict`` uses the scored network or its baseline, or "" if this is unknown.

    The sentence has the mean Dice of the baseline if ``baseline`` has scores of the same cases.
    """
    shipped = run.shipped()
    if shipped is None or results is None:
        return ""
    if shipped.network != "baseline":
        return "These are the scores of the network that predict uses."
    sentence = "These are the scores of the network of the run, but predict uses the supervised baseline"
    if baseline is None or _scored(baseline) != _scored(results):
        return f"{sentence}."
    dice = format_value(mean_metrics(baseline.evaluation)["dice"])
    return f"{sentence}, which has a mean Dice of {dice} % on the same cases."


def _scored(results: Results) -> tuple[str, set[str]]:
    return results.evaluation.protocol, {row.case for row in results.evaluation.rows}
