"""The output folder of label maps, and its manifest, which every prediction updates."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from graftseg.core.csv_tables import read_csv_rows
from graftseg.core.errors import Code, UserError
from graftseg.core.files import PARTIAL, check_writable
from graftseg.core.names import same_names
from graftseg.core.predictions import Manifest, PredictedCase, extra_files, read_manifest
from graftseg.data.grouping import labels_in
from graftseg.inference.inputs import Source
from graftseg.inference.label_maps import LABELS_ONLY, ExtraMaps, check_classes, names_of, write_classes
from graftseg.recipes.settings import InferenceSettings

SCORES = ("metrics.csv", "metrics.json")
OTHER_FOLDER = "name another folder as --out"
MAX_NAME_BYTES = 255
"""Maximum length of a file name in usual file systems."""


@dataclass(frozen=True)
class OutputFolder:
    """A folder for the label maps of the cases in ``names``. ``files`` are the files to write.

    ``planned`` is the manifest without cases. A label map is replaced or removed only if an earlier manifest lists it.
    The class list, scores of replaced label maps and partial files can also be replaced or removed. Errors about the
    content of the folder end in ``remedy``.
    """

    path: Path
    planned: Manifest
    names: tuple[str, ...]
    files: set[str]
    remedy: str = OTHER_FOLDER

    def check(self) -> None:
        """Raise an error if the label maps cannot be written here. Nothing is written or removed."""
        check_writable(self.path)
        self._next_manifest()

    def begin(self) -> tuple[Manifest, bool]:
        """Write the manifest and remove outdated files. Return the manifest and whether scores were removed.

        Earlier label maps made with the same settings stay until they are overwritten.
        """
        manifest, before = self._next_manifest()
        for partial in self.path.glob(f"{PARTIAL}*"):
            partial.unlink()
        manifest.save(self.path)
        write_classes(self.path, manifest.classes)
        if before is None:
            return manifest, False
        outdated = _all_files(self.names, manifest) & before.outputs
        if _same_settings(before.inference, manifest.inference):
            outdated -= self.files
        for name in outdated | self._renamed_files(before):
            (self.path / name).unlink(missing_ok=True)
        return manifest, self._remove_scores()

    def end(self, manifest: Manifest, done: Sequence[PredictedCase], failures: Mapping[str, UserError]) -> None:
        """Add the results to the manifest and remove label maps of cases that failed."""
        failed = _all_files(failures, manifest) & manifest.outputs
        for name in failed:
            (self.path / name).unlink(missing_ok=True)
        ended = failed | {name for case in done for name in case.files}
        replace(
            manifest,
            cases=tuple(sorted((*manifest.cases, *done), key=lambda case: case.case)),
            failures={**manifest.failures, **{name: str(error) for name, error in failures.items()}},
            unfinished=tuple(name for name in manifest.unfinished if name not in ended),
            ended=now(),
        ).save(self.path)

    def count_others(self) -> int:
        """Return the number of label maps in the folder that this prediction does not write."""
        return len({path.name for path in labels_in(self.path)} - extra_files(self.path) - self.files)

    def _next_manifest(self) -> tuple[Manifest, Manifest | None]:
        """Return the manifest to start with, which keeps earlier cases, and the earlier manifest if one exists."""
        check_classes(self.path, self.remedy)
        before = read_manifest(self.path, self.remedy)
        if before is not None and before.weights != self.planned.weights:
            finding = f"contains label maps of another network, trained in {before.run}"
            raise UserError(Code.PREDICTIONS_MISMATCH, self.path, finding, self.remedy)
        for name in sorted(self.files - (before.outputs if before else set())):
            if (self.path / name).exists():
                finding = "the file exists and is not a label map of this run"
                raise UserError(Code.UNSAFE_TARGET, self.path / name, finding, self.remedy)
        manifest = replace(self.planned, unfinished=tuple(sorted(self.files)))
        return (manifest if before is None else self._with_earlier_cases(manifest, before)), before

    def _with_earlier_cases(self, manifest: Manifest, before: Manifest) -> Manifest:
        repeated = same_names((case.case for case in before.cases), self.names)
        kept = [case for case in before.cases if case.case not in repeated and (self.path / case.output).is_file()]
        if kept and not _same_settings(before.inference, manifest.inference):
            finding = f"contains {len(kept)} label maps of other cases, made with different inference settings"
            raise UserError(Code.PREDICTIONS_MISMATCH, self.path, finding, self.remedy)
        failures = {
            name: reason
            for name, reason in before.failures.items()
            if names_of(name, LABELS_ONLY).labels not in self.files
        }
        return replace(manifest, cases=tuple(kept), failures=failures)

    def _renamed_files(self, before: Manifest) -> set[str]:
        """Return the earlier files of the cases in ``names`` that this prediction does not overwrite.

        For example, the name of an earlier file may have another Unicode form.
        """
        repeated = same_names((case.case for case in before.cases), self.names)
        return {file for case in before.cases if case.case in repeated for file in case.files} - self.files

    def _remove_scores(self) -> bool:
        """Remove scores of label maps that are about to be replaced. Return whether a table was removed."""
        table, description = (self.path / name for name in SCORES)
        existed = table.is_file()
        if existed and (scored := _scored_cases(table)) and not same_names(scored, self.names):
            return False
        for path in (description, table):
            path.unlink(missing_ok=True)
        return existed


def now() -> str:
    """Return the current UTC time as ISO text, rounded down to seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def output_files(names: Iterable[str], extras: ExtraMaps) -> set[str]:
    """Return the files of all cases with valid names. Raise an error if two cases would write the same file."""
    planned: set[str] = set()
    for name in names:
        files = {file for file in names_of(name, extras).all if not _is_too_long(file)}
        if shared := sorted(planned & files):
            raise UserError(Code.CASE_DUPLICATE, shared[0], "two cases would write this file", "rename one of them")
        planned |= files
    return planned


def find_long_names(cases: Iterable[Source], extras: ExtraMaps) -> dict[str, UserError]:
    """Return an error for each case whose files would have names that are too long for a file system."""
    remedy = "give the scan a shorter name"
    return {
        case.name: UserError(Code.CASE_NAME, case.files[0], "the names of its label maps would be too long", remedy)
        for case in cases
        if any(_is_too_long(file) for file in names_of(case.name, extras).all)
    }


def _is_too_long(name: str) -> bool:
    return len(name.encode(errors="replace")) > MAX_NAME_BYTES


def check_inputs(out: Path, cases: Sequence[Source], files: set[str], remedy: str = OTHER_FOLDER) -> None:
    """Raise an error if a label map would overwrite a scan."""
    # Unlike Path.resolve, os.path.realpath does not fail for a link that leads back to itself.
    inputs = {os.path.realpath(path) for case in cases for path in case.files}
    for name in sorted(files):
        if (place := os.path.realpath(out / name)) in inputs:
            raise UserError(Code.UNSAFE_TARGET, place, "the label map would overwrite a scan", remedy)


def _all_files(names: Iterable[str], manifest: Manifest) -> set[str]:
    """Return all possible files of the cases in ``names``, except the files that ``manifest`` lists for its cases."""
    all_extras = ExtraMaps(probabilities=True, uncertainty=True, pictures=True)
    kept = {file for case in manifest.cases for file in case.files}
    return {file for name in names for file in names_of(name, all_extras).all} - kept


def _same_settings(before: Mapping[str, object], planned: Mapping[str, object]) -> bool:
    """Return whether inference settings are equal. Settings missing from an older manifest have their default."""
    try:
        return InferenceSettings.model_validate(before) == InferenceSettings.model_validate(planned)
    except ValidationError:
        return False


def _scored_cases(table: Path) -> set[str]:
    """Return the case names in a metrics table, or an empty set if the table cannot be read."""
    try:
        return {line["case"] for line in read_csv_rows(table)}
    except (OSError, csv.Error, ValueError, KeyError):
        return set()
