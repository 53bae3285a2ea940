"""Change the stages of a run as a check of the teacher decided."""

from collections.abc import Sequence
from typing import Any

from graftseg.core.teacher_checks import TeacherCheck
from graftseg.recipes.settings import StageSettings


def adapted_stages(stages: Sequence[StageSettings], check: TeacherCheck) -> list[tuple[StageSettings, int]]:
    """Return all stages, changed as a check decided, each with the index of the stage from which it was made.

    ``extend`` repeats the stage before the checked stage, with steps taken from the checked stage. ``skip`` replaces
    the checked stage and all later ones by the stage before it, with the added steps of the check. ``stop`` does the
    same after the step of the check, without added steps.
    """
    numbered = [(stage, index) for index, stage in enumerate(stages)]
    before, (checked, *rest) = numbered[: check.stage], numbered[check.stage :]
    if check.decision == "continue":
        return numbered
    first, steps = before[-1], checked[0].steps
    schedule = {key: getattr(checked[0], key) for key in ("optimizer", "carry_optimizer")}
    if check.decision == "stop":
        remaining = steps - check.step + sum(stage.steps for stage, _ in rest)
        last = [_changed(first, steps=remaining, **schedule)] if remaining else []
        return [*before, _changed(checked, steps=check.step), *last]
    if check.decision == "skip":
        total = steps + check.added + sum(stage.steps for stage, _ in rest)
        return [*before, _changed(first, steps=total, **schedule)]
    extra = max(1, min(first[0].steps, steps // 2))
    extended = _changed(first, steps=extra, carry_optimizer=checked[0].carry_optimizer)
    return [*before, extended, _changed(checked, steps=steps - extra), *rest]


def _changed(numbered: tuple[StageSettings, int], **settings: Any) -> tuple[StageSettings, int]:
    stage, index = numbered
    return stage.model_copy(update=settings), index
