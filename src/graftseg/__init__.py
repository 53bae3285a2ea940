"""Semi-supervised medical image segmentation by bidirectional copy-paste.

The verbs of the command line are functions here, with the same names: ``graftseg.train(...)``,
``graftseg.predict(...)`` and so on. They are imported when first used, so that ``import graftseg`` is immediate.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graftseg.errors import StoppedError, UserError

__version__ = "0.1.0"

_VERBS = ("check", "plan", "prepare", "train", "predict", "evaluate", "report", "record", "table", "info", "doctor")

if TYPE_CHECKING:
    from graftseg.api import check, doctor, evaluate, info, plan, predict, prepare, record, report, table, train

__all__ = [
    "StoppedError",
    "UserError",
    "check",
    "doctor",
    "evaluate",
    "info",
    "plan",
    "predict",
    "prepare",
    "record",
    "report",
    "table",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a verb from :mod:`graftseg.api` when it is first asked for."""
    if name in _VERBS:
        return getattr(import_module("graftseg.api"), name)
    raise AttributeError(f"module 'graftseg' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The verbs and the errors, for people who press the tab key."""
    return [*__all__, "__version__"]
