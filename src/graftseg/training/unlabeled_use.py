"""How a run used its unlabeled scans, according to the checks of its teacher."""

from graftseg.core.phrases import counted
from graftseg.core.run_folder import RunFolder, fold_count
from graftseg.evaluation.verdicts import AS_PLANNED, UnlabeledUse

NOT_USED = "both networks are supervised, because the unlabeled scans were not used"


def unlabeled_use(run: RunFolder) -> UnlabeledUse:
    """Return how a run, or how the folds of a cross-validation, used the unlabeled scans."""
    if not (count := fold_count(run)):
        return _use_of_run(run)
    uses = [_use_of_run(run.fold(number)) for number in range(count)]
    unused = sum(use.is_supervised_only for use in uses)
    partial = sum(bool(use.note) for use in uses) - unused
    if unused == count:
        reason = f"in each of {count} folds, too few predictions were plausible for self-training"
        return UnlabeledUse(f"{NOT_USED}: {reason}", is_supervised_only=True)
    parts = [f"not used in {unused}"] * bool(unused) + [f"used only in part in {partial}"] * bool(partial)
    return UnlabeledUse(f"the unlabeled scans were {' and '.join(parts)} of {count} folds") if parts else AS_PLANNED


def _use_of_run(run: RunFolder) -> UnlabeledUse:
    checks = run.teacher_checks()
    if (last := checks.abandoned) is None:
        return AS_PLANNED
    if checks.is_supervised_only:
        more = f"; the run has {counted(last.added, 'step')} more than its baseline" if last.added else ""
        return UnlabeledUse(f"{NOT_USED}: {last.finding}{more}", is_supervised_only=True)
    until = f"until step {last.step} of self-training" if last.decision == "stop" else "in an earlier stage"
    return UnlabeledUse(f"the unlabeled scans were used only {until}, because {last.finding}")
