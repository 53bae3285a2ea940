"""Errors that a user can cause and fix, each with a code."""

import unicodedata
from enum import StrEnum
from pathlib import Path


class Code(StrEnum):
    """Stable names of all user errors. ``docs/reference/errors.md`` explains the cause and the fix of each error."""

    BENCHMARK_MISMATCH = "benchmark-mismatch"
    BUDGET_TOO_SMALL = "budget-too-small"
    CASE_DUPLICATE = "case-duplicate"
    CASE_NAME = "case-name"
    CHANNELS_MISMATCH = "channels-mismatch"
    CHECKPOINT_DAMAGED = "checkpoint-damaged"
    CHECKPOINT_MISMATCH = "checkpoint-mismatch"
    CLASS_NOT_LEARNED = "class-not-learned"
    CLUSTER_UNFIT = "cluster-unfit"
    CLUSTER_UNREACHABLE = "cluster-unreachable"
    DAMAGED_FILE = "damaged-file"
    DATASET_INVALID = "dataset-invalid"
    DEVICE_UNAVAILABLE = "device-unavailable"
    DICOM_SERIES = "dicom-series"
    EXPORT_UNSUPPORTED = "export-unsupported"
    FILE_MISSING = "file-missing"
    FOLDER_LOCKED = "folder-locked"
    FOLDER_MISSING = "folder-missing"
    FOLDER_NOT_SHARED = "folder-not-shared"
    GEOMETRY_MISMATCH = "geometry-mismatch"
    INTERRUPTED = "interrupted"
    LABEL_INVALID = "label-invalid"
    LABEL_UNMATCHED = "label-unmatched"
    LABELS_EMPTY = "labels-empty"
    LAYOUT_UNKNOWN = "layout-unknown"
    LOSS_NOT_FINITE = "loss-not-finite"
    NO_BEST_CHECKPOINT = "no-best-checkpoint"
    NO_SUCH_FOLD = "no-such-fold"
    NO_TEST_CASES = "no-test-cases"
    NOT_A_FOLDER = "not-a-folder"
    NOT_A_RUN = "not-a-run"
    NOT_A_SCAN = "not-a-scan"
    NOT_A_STORE = "not-a-store"
    NOT_COMPARABLE = "not-comparable"
    NOT_TESTED = "not-tested"
    OPTION_CONFLICT = "option-conflict"
    OPTION_INVALID = "option-invalid"
    OUT_OF_MEMORY = "out-of-memory"
    PACKAGE_MISSING = "package-missing"
    PERMISSION_DENIED = "permission-denied"
    PREDICTIONS_MISMATCH = "predictions-mismatch"
    RANK_LOST = "rank-lost"
    READ_FAILED = "read-failed"
    RECIPE_INVALID = "recipe-invalid"
    RECIPE_MISMATCH = "recipe-mismatch"
    RECIPE_MISSING = "recipe-missing"
    RECORD_INVALID = "record-invalid"
    RUN_MISMATCH = "run-mismatch"
    RUN_UNFINISHED = "run-unfinished"
    SCAN_DAMAGED = "scan-damaged"
    SCAN_HEADER = "scan-header"
    SCAN_TOO_LARGE = "scan-too-large"
    SCAN_UNSUPPORTED = "scan-unsupported"
    SETTING_INVALID = "setting-invalid"
    STORE_MISMATCH = "store-mismatch"
    STORE_MISSING = "store-missing"
    TARGET_EXISTS = "target-exists"
    TOO_FEW_CASES = "too-few-cases"
    UNKNOWN_NAME = "unknown-name"
    UNSAFE_TARGET = "unsafe-target"
    VARIANT_NEEDED = "variant-needed"
    WEIGHTS_DAMAGED = "weights-damaged"
    WEIGHTS_MISSING = "weights-missing"
    WORKER_LOST = "worker-lost"
    WRITE_FAILED = "write-failed"


HARMLESS = "\n\t\u200c\u200d"
"""Characters that may be printed although ``str.isprintable`` is false for them: line ends, tabs and joiners."""


def in_one_line(text: str) -> str:
    """Escape unprintable characters, such as a newline in a file name, so that the text stays in one line."""
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def visible(text: str) -> str:
    """Escape characters that control a terminal, have no width or change the direction of text, except joiners."""
    return "".join(character if _is_visible(character) else _escape(character) for character in text)


def _is_visible(character: str) -> bool:
    return character.isprintable() or character in HARMLESS or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


class UserError(Exception):
    """A problem that the user can fix. The command line prints one line and exits with code 2, without a traceback.

    ``where`` is the file, folder or option, ``finding`` is what is wrong, and ``remedy`` is what to do.
    """

    def __init__(self, code: Code, where: str | Path, finding: str, remedy: str) -> None:
        self.code = code
        self.where = str(where)
        self.finding = finding
        self.remedy = remedy
        period = "" if remedy.endswith(".") else "."
        super().__init__(in_one_line(f"{self.where}: {finding}; {remedy}{period} [{code}]"))

    def __reduce__(self) -> tuple[type["UserError"], tuple[Code, str, str, str]]:
        """Keep all four parts when the error is pickled."""
        return type(self), (self.code, self.where, self.finding, self.remedy)

    def to_json(self) -> dict[str, str]:
        """Return the four parts by name."""
        return {"code": self.code, "where": self.where, "finding": self.finding, "remedy": self.remedy}


class StoppedError(Exception):
    """A command was stopped by Ctrl-C, SIGTERM or SIGHUP. The state is saved unless ``is_saved`` is false."""

    def __init__(self, signal: int, steps: int, *, where: str = "", is_saved: bool = True) -> None:
        place = f" in {where}," if where else ""
        super().__init__(f"stopped{place} after step {steps}" + ("; the state is saved" if is_saved else ""))
        self.signal, self.steps = signal, steps
        self.remedy = "run the same command again"
