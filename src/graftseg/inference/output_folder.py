"""The output folder of label maps: its manifest, locks, journals and outdated files."""

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import sleep

from pydantic import ValidationError

from graftseg.core.csv_tables import read_csv_rows
from graftseg.core.errors import Code, UserError
from graftseg.core.files import PARTIAL, check_writable, is_locked, locked
from graftseg.core.names import same_names
from graftseg.core.predictions import (
    JOURNALS,
    Manifest,
    PredictedCase,
    extra_files,
    journal_name,
    read_manifest,
    write_journal,
)
from graftseg.data.grouping import labels_in
from graftseg.data.scans import FORMATS
from graftseg.inference.inputs import Source
from graftseg.inference.label_maps import LABELS_ONLY, ExtraMaps, check_classes, names_of, write_classes
from graftseg.inference.prediction_settings import DEFAULT_SETTINGS, OTHER_FOLDER, PredictionSettings
from graftseg.recipes.settings import InferenceSettings

SCORES = ("metrics.csv", "metrics.json")
IN_USE = "another prediction writes into this folder"
LOCK_ATTEMPTS, LOCK_SECONDS = 600, 0.1
"""How often a shard tries to lock the manifest, and the pause between two attempts."""
MAX_NAME_BYTES = 255  # maximum length of a file name in usual file systems


@dataclass(frozen=True)
class OutputFolder:
    """A folder of label maps that a prediction writes.

    Label maps are replaced or removed only if an earlier manifest lists them. The class list, scores of replaced label
    maps and partial files may also be replaced or removed. Shards write into one folder at the same time. Each shard
    has its own lock and its own journal.
    """

    path: Path
    new_manifest: Manifest  # manifest of this prediction, without cases
    case_names: tuple[str, ...]  # cases to predict, and cases that cannot be predicted
    file_names: set[str]  # all files to write
    settings: PredictionSettings = DEFAULT_SETTINGS

    def check(self) -> None:
        """Raise an error if the label maps cannot be written here. Write and remove nothing."""
        check_writable(self.path)
        self._next_manifest()

    @property
    def journal(self) -> Path:
        """Return the path of the journal, which has one line per scan of this prediction."""
        return self.path / journal_name(None if self.settings.shard is None else str(self.settings.shard))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, or only the shard, while this prediction runs."""
        if (shard := self.settings.shard) is not None:
            with locked(self.path / f".shard-{shard}", f"shard {shard} is predicted by another process"):
                yield
            return
        with locked(self.path, IN_USE):
            if any(is_locked(lock) for lock in self.path.glob(".shard-*")):
                raise UserError(Code.FOLDER_LOCKED, self.path, IN_USE, "wait until it ends or choose another --out")
            yield

    @contextmanager
    def _lock_manifest(self) -> Iterator[None]:
        """Lock the manifest, so that only one shard at a time changes it."""
        if self.settings.shard is None:
            yield
            return
        for attempt in range(LOCK_ATTEMPTS):
            try:
                with locked(self.path, IN_USE):
                    yield
                return
            except UserError as error:
                if error.code is not Code.FOLDER_LOCKED or attempt == LOCK_ATTEMPTS - 1:
                    raise
                sleep(LOCK_SECONDS)

    def begin(self) -> tuple[Manifest, bool]:
        """Write the manifest and remove outdated files. Return the manifest and whether there was an earlier one."""
        with self._lock_manifest():
            manifest, earlier = self._next_manifest()
            if self.settings.shard is None:
                for partial in self.path.glob(f"{PARTIAL}*"):
                    partial.unlink()
            self._start_journal(manifest)
            manifest.save(self.path)
            write_classes(self.path, manifest.classes)
            if earlier is not None:
                for name in self._outdated_files(manifest, earlier):
                    (self.path / name).unlink(missing_ok=True)
            return manifest, earlier is not None

    def _outdated_files(self, manifest: Manifest, earlier: Manifest) -> set[str]:
        """Return the files that an earlier prediction wrote for these cases and that ``manifest`` does not keep.

        With the same settings, an old file stays until the new file replaces it.
        """
        outdated = _possible_files(self.case_names, manifest.cases) & earlier.outputs
        if _same_settings(earlier.inference, manifest.inference):
            outdated -= self.file_names
        # the files of a case have new names if its name now has another Unicode form
        repeated = same_names((case.case for case in earlier.cases), self.case_names)
        earlier_files = {file for case in earlier.cases if case.case in repeated for file in case.files}
        return outdated | (earlier_files - self.file_names)

    def end(
        self,
        manifest: Manifest,
        done: Sequence[PredictedCase],
        failures: Mapping[str, UserError],
        peak_memory: dict[str, int],
    ) -> None:
        """Add the results to the manifest and remove label maps of cases that failed."""
        with self._lock_manifest():
            if self.settings.shard is not None:
                # other shards may have changed the manifest
                manifest = read_manifest(self.path, self.settings.remedy) or manifest
            replaced = same_names((case.case for case in manifest.cases), [*failures, *(case.case for case in done)])
            kept = [case for case in manifest.cases if case.case not in replaced]
            removed = _possible_files(failures, kept) & manifest.outputs
            for name in removed:
                (self.path / name).unlink(missing_ok=True)
            finished = removed | {name for case in done for name in case.files}
            replace(
                manifest,
                cases=tuple(sorted((*kept, *done), key=lambda case: case.case)),
                failures={**manifest.failures, **{name: str(error) for name, error in failures.items()}},
                unfinished=tuple(name for name in manifest.unfinished if name not in finished),
                ended=now(),
                peak_memory=peak_memory,
            ).save(self.path)

    def _start_journal(self, manifest: Manifest) -> None:
        """Start the journal with the cases of the manifest. A shard writes only its own cases."""
        cases = manifest.cases
        if self.settings.shard is None:
            for journal in self.path.glob(JOURNALS):
                journal.unlink()
        else:
            names = same_names((case.case for case in cases), self.case_names)
            cases = tuple(case for case in cases if case.case in names)
        write_journal(self.journal, cases)

    def count_others(self) -> int:
        """Return the number of label maps in the folder that this prediction does not write."""
        return len({path.name for path in labels_in(self.path)} - extra_files(self.path) - self.file_names)

    def _next_manifest(self) -> tuple[Manifest, Manifest | None]:
        """Return the manifest to start with, which contains earlier cases, and the earlier manifest if one exists."""
        check_classes(self.path, self.settings.remedy)
        earlier = read_manifest(self.path, self.settings.remedy)
        if earlier is not None and earlier.weights != self.new_manifest.weights:
            finding = f"contains label maps of another network, trained in {earlier.run}"
            raise UserError(Code.PREDICTIONS_MISMATCH, self.path, finding, self.settings.remedy)
        for name in sorted(self.file_names - (earlier.outputs if earlier else set())):
            if (self.path / name).exists():
                finding = "the file exists and is not a label map of this run"
                raise UserError(Code.UNSAFE_TARGET, self.path / name, finding, self.settings.remedy)
        manifest = replace(self.new_manifest, unfinished=tuple(sorted(self.file_names)))
        return (manifest if earlier is None else self._with_earlier_cases(manifest, earlier)), earlier

    def _with_earlier_cases(self, manifest: Manifest, earlier: Manifest) -> Manifest:
        """Add the cases and failures of an earlier manifest that this prediction does not replace.

        A resumed prediction also keeps earlier label maps of its own cases, and later replaces those that are outdated.
        """
        repeated = same_names((case.case for case in earlier.cases), self.case_names)
        present = [case for case in earlier.cases if (self.path / case.output).is_file()]
        cases = [case for case in present if case.case not in repeated]
        has_same_settings = _same_settings(earlier.inference, manifest.inference)
        if cases and not has_same_settings:
            finding = f"contains {len(cases)} label maps of other cases, made with different inference settings"
            raise UserError(Code.PREDICTIONS_MISMATCH, self.path, finding, self.settings.remedy)
        if self.settings.is_resumed and has_same_settings:
            cases += [
                case
                for case in present
                if case.case in repeated and case.key and case.files == names_of(case.case, self.settings.extras).all
            ]
        files = {file for case in cases for file in case.files}
        of_other_shards = () if self.settings.shard is None else earlier.unfinished
        unfinished = tuple(sorted({*manifest.unfinished, *of_other_shards} - files))
        failures = {
            name: reason
            for name, reason in earlier.failures.items()
            if names_of(name, LABELS_ONLY).labels not in self.file_names
        }
        return replace(manifest, cases=tuple(cases), failures=failures, unfinished=unfinished)

    def remove_scores(self, names: Iterable[str]) -> bool:
        """Remove the scores if they include one of the cases in ``names``. Return whether a table was removed."""
        table, description = (self.path / name for name in SCORES)
        existed = table.is_file()
        if existed and (scored := _scored_cases(table)) and not same_names(scored, names):
            return False
        for path in (description, table):
            path.unlink(missing_ok=True)
        return existed


def now() -> str:
    """Return the current UTC time as ISO text, rounded down to seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def output_files(names: Iterable[str], extras: ExtraMaps) -> set[str]:
    """Return the files of all cases, except names that are too long. Raise an error if two cases share a file."""
    all_files: set[str] = set()
    for name in names:
        files = {file for file in names_of(name, extras).all if not _is_too_long(file)}
        if shared := sorted(all_files & files):
            raise UserError(Code.CASE_DUPLICATE, shared[0], "two cases would write this file", "rename one of them")
        all_files |= files
    return all_files


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


def refuse_file_name(out: Path) -> None:
    """Raise a UserError if a new folder of label maps would have the name of a scan, such as ``scan.nii.gz``."""
    if not out.is_dir() and out.name.lower().endswith(tuple(FORMATS)):
        finding = "the name of a file, but label maps are written into a folder"
        remedy = "name a folder as --out; the label map is named after the scan"
        raise UserError(Code.NOT_A_FOLDER, out, finding, remedy)


def check_inputs(out: Path, cases: Sequence[Source], files: set[str], remedy: str = OTHER_FOLDER) -> None:
    """Raise an error if a label map would overwrite a scan."""
    # Unlike Path.resolve, os.path.realpath does not fail for a link that leads back to itself.
    inputs = {os.path.realpath(path) for case in cases for path in case.files}
    for name in sorted(files):
        if (place := os.path.realpath(out / name)) in inputs:
            raise UserError(Code.UNSAFE_TARGET, place, "the label map would overwrite a scan", remedy)


def _possible_files(names: Iterable[str], kept: Iterable[PredictedCase]) -> set[str]:
    """Return all files that predictions of the cases in ``names`` may write, except the files of ``kept`` cases."""
    all_extras = ExtraMaps(probabilities=True, uncertainty=True, pictures=True)
    kept_files = {file for case in kept for file in case.files}
    return {file for name in names for file in names_of(name, all_extras).all} - kept_files


def _same_settings(earlier: Mapping[str, object], planned: Mapping[str, object]) -> bool:
    """Return whether inference settings are equal. Settings missing from an older manifest have their default."""
    try:
        return InferenceSettings.model_validate(earlier) == InferenceSettings.model_validate(planned)
    except ValidationError:
        return False


def _scored_cases(table: Path) -> set[str]:
    """Return the case names in a metrics table, or an empty set if the table cannot be read."""
    try:
        return {line["case"] for line in read_csv_rows(table)}
    except (OSError, csv.Error, ValueError, KeyError):
        return set()
