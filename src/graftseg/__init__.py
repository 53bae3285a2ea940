"""Semi-supervised medical image segmentation by bidirectional copy-paste.

The verbs of the command line are functions here, with the same names: ``graftseg.train(...)``,
``graftseg.predict(...)`` and so on. ``graftseg.load(...)`` returns a model that predicts arrays. All functions are
imported when first used, so that ``import graftseg`` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graftseg.core.errors import StoppedError, UserError
from graftseg.core.version import __version__

if TYPE_CHECKING:
    from graftseg.api import (
        Sources,
        check,
        compare,
        compare_methods,
        continue_training,
        doctor,
        evaluate,
        export,
        figure,
        import_weights,
        info,
        load,
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
        view,
    )

__all__ = [
    "Sources",
    "StoppedError",
    "UserError",
    "__version__",
    "check",
    "compare",
    "compare_methods",
    "continue_training",
    "doctor",
    "evaluate",
    "export",
    "figure",
    "import_weights",
    "info",
    "load",
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
    "view",
]


def __getattr__(name: str) -> Any:
    """Import a verb from :mod:`graftseg.api` when it is first used."""
    if name in __all__:
        return getattr(import_module("graftseg.api"), name)
    raise AttributeError(f"module 'graftseg' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the verbs and the errors for tab completion."""
    return __all__
