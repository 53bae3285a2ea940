"""Semi-supervised medical image segmentation by bidirectional copy-paste.

The verbs of the command line are functions here, with the same names: ``graftseg.train(...)``,
``graftseg.predict(...)`` and so on. They are imported when first used, so that ``import graftseg`` is immediate.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graftseg.core.errors import StoppedError, UserError

__version__ = "0.1.0"

_API = "graftseg.api"
_VERBS = {
    **dict.fromkeys(
        ("check", "plan", "prepare", "train", "train_folds", "predict", "evaluate", "report", "compare"), _API
    ),
    **dict.fromkeys(("Sources", "rank", "export", "record", "sweep", "table", "test", "info", "doctor"), _API),
}

if TYPE_CHECKING:
    from graftseg.api import (
        Sources,
        check,
        compare,
        doctor,
        evaluate,
        export,
        info,
        plan,
        predict,
        prepare,
        rank,
        record,
        report,
        sweep,
        table,
        test,
        train,
        train_folds,
    )

__all__ = [
    "Sources",
    "StoppedError",
    "UserError",
    "check",
    "compare",
    "doctor",
    "evaluate",
    "export",
    "info",
    "plan",
    "predict",
    "prepare",
    "rank",
    "record",
    "report",
    "sweep",
    "table",
    "test",
    "train",
    "train_folds",
]


def __getattr__(name: str) -> Any:
    """Import a verb from its module, mostly :mod:`graftseg.api`, when it is first asked for."""
    if name in _VERBS:
        return getattr(import_module(_VERBS[name]), name)
    raise AttributeError(f"module 'graftseg' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The verbs and the errors, for people who press the tab key."""
    return [*__all__, "__version__"]
