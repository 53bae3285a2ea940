"""Broken cases, which ``check --fix --drop`` leaves out of the fixed copy."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.data.checks.findings import Finding
from graftseg.data.dataset import Dataset
from graftseg.data.grouping import CHANNEL
from graftseg.data.label_names import cases_of_name
from graftseg.data.layouts import FOLDERS
from graftseg.data.scans import files_of, scan_stem

NAME_PROBLEMS = (
    Code.CASE_DUPLICATE,
    Code.CASE_NAME,
    Code.CHANNELS_MISMATCH,
    Code.FILE_MISSING,
    Code.LABEL_UNMATCHED,
)
"""Problems of a layout that disappear if the named files are left out."""


def find_broken(dataset: Dataset, findings: Iterable[Finding]) -> dict[str, str]:
    """Return the cases to leave out, and the files to leave out that belong to no case, each with the reason."""
    broken: dict[str, str] = {}
    for finding in findings:
        if finding.fixed_by == "--drop":
            broken |= {name: finding.what for name in finding.cases if name not in broken}
    for problem in dataset.problems:
        if problem.code in NAME_PROBLEMS:
            path = Path(problem.where)
            file = path.relative_to(dataset.root).as_posix() if path.is_relative_to(dataset.root) else problem.where
            for name in _cases_of(dataset, problem) or [file]:
                broken.setdefault(name, problem.finding)
    return broken


def without_broken(dataset: Dataset, broken: dict[str, str]) -> Dataset:
    """Return a data set without broken cases. Refuse to leave out all labeled cases."""
    intact = replace(dataset, cases=tuple(case for case in dataset.cases if case.name not in broken))
    if not intact.of("labeled"):
        finding = "all labeled cases are broken, so --drop would leave no labeled case"
        raise UserError(Code.TOO_FEW_CASES, dataset.root, finding, "correct at least one of the labeled cases")
    return intact


def without_strays(files: Iterable[Path], dataset: Dataset) -> Iterator[Path]:
    """Yield the files of the cases, and all files outside of the folders of images and labels."""
    scans = {path for case in dataset.cases for path in (*case.images, case.label) if path is not None}
    used = scans | {file for path in scans if not path.is_dir() for file in files_of(path)}
    folders = {dataset.root / name for images, labels, _ in FOLDERS for name in (images, labels) if name is not None}
    for file in files:
        if folders.isdisjoint(file.parents) or not used.isdisjoint((file, *file.parents)):
            yield file


def _cases_of(dataset: Dataset, problem: UserError) -> list[str]:
    """Return the cases that a problem concerns: the case of the named file, or the cases with the name of the file."""
    path = Path(problem.where)
    by_file = [case.name for case in dataset.cases if path in (*case.images, case.label)]
    names = [case.name for case in dataset.cases]
    return by_file or sorted({case for stem in _stems(path, problem) for case in cases_of_name(stem, names)})


def _stems(path: Path, problem: UserError) -> Iterator[str]:
    """Yield the possible case names of a file. An error about a duplicate case may name the case instead of a file."""
    if problem.code is Code.CASE_DUPLICATE:
        yield problem.where
        yield scan_stem(path)
        if match := CHANNEL.fullmatch(scan_stem(path)):
            yield match["case"]
