"""A run and scans -> label maps in the scans' own geometry, beside a manifest that says where they come from."""

import csv
import os
import resource
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from pydantic import ValidationError

from graftseg.core.devices import free_memory, versions
from graftseg.core.errors import Code, UserError
from graftseg.core.files import PARTIAL, check_writable, locked, make_folder
from graftseg.core.names import same_names
from graftseg.core.predictions import Manifest, PredictedCase, read_manifest
from graftseg.core.progress import ScanProgress, scan_progress
from graftseg.core.run_folder import RunFolder, ensemble_members
from graftseg.data.folders import CONVERSION_ADVICE, unsupported_ending
from graftseg.data.grid import Grid
from graftseg.data.scans import READABLE, is_scan
from graftseg.inference.ensemble import CHECKPOINTS, Checkpoint, Ensemble, predicted, select_weights
from graftseg.inference.inputs import Source, sources_in
from graftseg.inference.label_maps import ExtraMaps, check_classes, names_of, write_classes, write_maps
from graftseg.inference.predictor import Predictor
from graftseg.recipes.settings import InferenceSettings

__all__ = ["CHECKPOINTS", "FLIPS", "Checkpoint", "ExtraMaps", "Predicted", "predict_scans", "select_weights"]

SCORES = ("metrics.csv", "metrics.json")
ELSEWHERE = "name another folder as --out"
FLIPS = "inference.flips=true"
UNSEEN = (
    "the network was trained without mirrored scans (batches.augment.rotate_flip is 0): flips may spoil its label maps"
)
DROPPED = "{}: the scores there were of label maps that have been made anew and are removed; test or evaluate again"


@dataclass(frozen=True)
class Predicted:
    """The label maps of a call, what could not be predicted, each with its reason, and warnings if need be.

    ``unfound`` are the classes of the network that none of the label maps has.
    """

    folder: Path
    cases: tuple[PredictedCase, ...]
    failures: tuple[UserError, ...]
    warnings: tuple[str, ...] = ()
    unfound: tuple[str, ...] = ()


def predict_scans(
    run: RunFolder,
    scans: Path,
    out: Path,
    device: torch.device,
    *,
    overrides: Iterable[str] = (),
    checkpoint: Checkpoint = "shipped",
    only: Collection[str] = (),
    fold: int | None = None,
    wanted: ExtraMaps | None = None,
) -> Predicted:
    """Predict every scan; one that cannot be predicted is named at the end and does not stop the others.

    ``scans`` is a scan, a folder of scans or a prepared store, of which the test cases are taken, or where names are
    given as ``only``, these cases of whatever split. ``overrides`` change settings under ``inference``. A run that
    holds folds predicts with the mean of all of them, or with one ``fold``. Label maps of other cases that the same
    networks wrote into ``out`` stay; everything else there is refused or left alone.

    What is ``wanted`` besides labels never changes them.
    """
    task = _task(run, scans, out, device, overrides, checkpoint, only, fold, wanted or ExtraMaps())
    networks, failures = task.networks, dict(task.failures)
    done: list[PredictedCase] = []
    found = {0}
    make_folder(out)
    with locked(out, "another prediction writes into this folder"):
        manifest, dropped = _begin(out, task)
        try:
            with scan_progress(len(task.cases), "Predicting") as meter:
                work = _Work(networks, task.wanted, out, meter, found)
                for case in task.cases:
                    try:
                        done.append(work.predict(case))
                    except UserError as error:
                        failures[case.name] = error
                    meter.end()
        finally:
            _end(out, replace(manifest, peak_memory=_peak_memory(device)), done, failures)
    unseen = networks.recipe.inference.flips and not networks.is_mirrored
    warnings = (*((UNSEEN,) if unseen else ()), *((DROPPED.format(out),) if dropped else ()))
    unfound = tuple(name for value, name in enumerate(networks.classes) if done and value not in found)
    return Predicted(out, tuple(done), tuple(failures.values()), warnings, unfound)


def check_target(run: RunFolder, scans: Path, out: Path, device: torch.device) -> None:
    """Refuse what a prediction of these scans into ``out`` would refuse; nothing is written or removed."""
    task = _task(run, scans, out, device, (), "shipped", (), None, ExtraMaps())
    check_writable(out)
    _succession(out, task)


@dataclass(frozen=True)
class _Task:
    """What a call is to predict, with which networks, and the manifest that it will write."""

    networks: Ensemble
    wanted: ExtraMaps
    cases: list[Source]
    failures: dict[str, UserError]
    planned: Manifest
    outputs: set[str]

    @property
    def names(self) -> tuple[str, ...]:
        """All cases, also those that cannot be predicted."""
        return (*self.failures, *(case.name for case in self.cases))


def _task(
    run: RunFolder,
    scans: Path,
    out: Path,
    device: torch.device,
    overrides: Iterable[str],
    checkpoint: Checkpoint,
    only: Collection[str],
    fold: int | None,
    wanted: ExtraMaps,
) -> _Task:
    """What is asked for; what cannot work is refused before anything is touched."""
    runs = ensemble_members(run, fold)
    networks = Ensemble.of(runs, device, overrides, checkpoint)
    cases, failures = sources_in(scans, networks.recipe.data, networks.channels, only, runs[0].training_case_names())
    if scans.is_file() and not is_scan(scans):
        # a mistyped name costs nothing of what is in the folder
        remedy = CONVERSION_ADVICE.get(
            unsupported_ending(scans.name) or "", f"use {READABLE} files with their usual endings"
        )
        raise UserError(Code.NOT_A_SCAN, scans, "not a scan by its name", remedy)
    outputs = _outputs((*failures, *(case.name for case in cases)), wanted)
    if scans.is_dir() and scans.resolve() == out.resolve():
        raise UserError(
            Code.UNSAFE_TARGET, out, "label maps would stand among the scans and be taken for scans", ELSEWHERE
        )
    _check_inputs(out, cases, outputs)
    networks.try_out()
    return _Task(networks, wanted, cases, failures, _planned(run, networks, wanted), outputs)


@dataclass(frozen=True)
class _Work:
    """Predicts one case after the other into a folder; ``found`` collects the values in their label maps."""

    networks: Ensemble
    wanted: ExtraMaps
    out: Path
    meter: ScanProgress
    found: set[int]

    def predict(self, case: Source) -> PredictedCase:
        """Read a case, write its maps and say so."""
        began, where, channels = perf_counter(), case.files[0], self.networks.channels
        predictor = replace(self.networks.predictor, tell=self.meter.tick)
        grid = case.grid()
        if self.wanted.pictures and len(grid.source_shape) > 2:
            raise UserError(
                Code.RECIPE_MISMATCH, where, "the label map of a volume is no picture", "leave out --pictures"
            )
        check_memory(grid, channels, predictor, self.wanted, where)
        given = case.read()
        if len(given.image) != channels:
            finding = f"the number of channels is {len(given.image)} where the run was trained on {channels}"
            raise UserError(
                Code.RECIPE_MISMATCH,
                where,
                finding,
                "give it the same channels: a folder with CASE_0000, CASE_0001, or one file",
            )
        self.meter.begin(predictor.windows_in(given.grid.prepared_shape))
        maps = predicted(predictor, given.image, given.grid, self.wanted, where)
        names = names_of(case.name, self.wanted)
        write_maps(self.out, names, maps, given.geometry)
        if len(self.found) < len(self.networks.classes):
            self.found.update(np.unique(maps.labels).tolist())
        return PredictedCase(
            case.name,
            tuple(str(path.resolve()) for path in case.files),
            names.labels,
            round(perf_counter() - began, 3),
            is_empty=not maps.labels.any(),
            probabilities=names.probabilities,
            uncertainty=names.uncertainty,
            mean_uncertainty=maps.mean_uncertainty,
            picture=names.picture,
            sha256=case.sha256,
        )


def _planned(run: RunFolder, networks: Ensemble, wanted: ExtraMaps) -> Manifest:
    """The manifest of label maps by these networks, without any case."""
    return Manifest(
        run=str(run.path.resolve()),
        weights=networks.identity(),
        inference=networks.recipe.inference.model_dump(mode="json"),
        classes=networks.classes,
        checkpoint=networks.chosen,
        device=str(networks.device),
        versions=versions(),
        networks=len(networks.members),
        opinions=networks.opinions if wanted.uncertainty else None,
        started=_now(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _peak_memory(device: torch.device) -> dict[str, int]:
    """The most bytes that this process has held so far, in main memory and on a GPU."""
    host = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    return host | ({"device": torch.cuda.max_memory_allocated(device)} if device.type == "cuda" else {})


def _output(name: str) -> str:
    return names_of(name, ExtraMaps()).labels


def _outputs(names: Iterable[str], wanted: ExtraMaps) -> set[str]:
    """The files of all cases; a case whose name is that of another's further file cannot be told from it."""
    found: set[str] = set()
    for name in names:
        files = set(names_of(name, wanted).all)
        if both := sorted(found & files):
            raise UserError(Code.UNSAFE_TARGET, both[0], "two cases would write this file", "rename one of them")
        found |= files
    return found


def _check_inputs(out: Path, cases: Sequence[Source], outputs: set[str]) -> None:
    """Never write a label map over a scan."""
    # unlike a path, this does not fail for a link that leads back to itself
    inputs = {os.path.realpath(path) for case in cases for path in case.files}
    for name in sorted(outputs):
        if (place := os.path.realpath(out / name)) in inputs:
            raise UserError(Code.UNSAFE_TARGET, place, "the label map would overwrite a scan", ELSEWHERE)


def _begin(out: Path, task: _Task) -> tuple[Manifest, bool]:
    """Write down what is about to be made; whether scores had to go, since they would be out of date, comes with it.

    Label maps of an earlier call stay until their successors are whole, unless other settings made them. Only files
    that an earlier manifest lists are ever replaced or removed; another network's are refused.
    """
    manifest, before = _succession(out, task)
    for left in out.glob(f"{PARTIAL}*"):
        left.unlink()
    manifest.save(out)
    write_classes(out, manifest.classes)
    if before is not None:
        replaced = _files(task.names, manifest) & before.outputs
        if _is_same_use(before.inference, manifest.inference):
            replaced -= task.outputs
        for name in replaced | _respelled(task, before):
            (out / name).unlink(missing_ok=True)
    return manifest, before is not None and _drop_scores(out, task)


def _respelled(task: _Task, before: Manifest) -> set[str]:
    """Files of the same cases under names in another Unicode form."""
    same = same_names((case.case for case in before.cases), task.names)
    return {file for case in before.cases if case.case in same for file in case.files} - task.outputs


def _drop_scores(out: Path, task: _Task) -> bool:
    """Remove scores of label maps that are about to be made anew, and say whether there were any."""
    table, described = (out / name for name in SCORES)
    if table.is_file() and (scored := _scored_cases(table)) and not same_names(scored, task.names):
        return False
    there = table.is_file()
    for path in (described, table):
        path.unlink(missing_ok=True)
    return there


def _scored_cases(table: Path) -> set[str]:
    """Return the case column of a metrics table; empty if the table cannot be read."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as stream:
            return {line["case"] for line in csv.DictReader(stream, strict=True)}
    except (OSError, csv.Error, UnicodeDecodeError, KeyError):
        return set()


def _succession(out: Path, task: _Task) -> tuple[Manifest, Manifest | None]:
    """The manifest to begin with and the earlier one, if there is one; what must not be replaced is refused."""
    check_classes(out, ELSEWHERE)
    before = _earlier(out, task.planned)
    known = before.outputs if before else set()
    for name in sorted(task.outputs - known):
        if (out / name).exists():
            raise UserError(
                Code.UNSAFE_TARGET, out / name, "the file exists and is not a label map of this run", ELSEWHERE
            )
    manifest = replace(task.planned, unfinished=tuple(sorted(task.outputs)))
    return (manifest if before is None else _succeeding(out, manifest, before, task.names, task.outputs)), before


def _succeeding(out: Path, manifest: Manifest, before: Manifest, names: Collection[str], outputs: set[str]) -> Manifest:
    """A manifest that keeps what an earlier one says of other cases."""
    again = same_names((case.case for case in before.cases), names)
    stays = [case for case in before.cases if case.case not in again and (out / case.output).is_file()]
    if stays and not _is_same_use(before.inference, manifest.inference):
        finding = f"holds {len(stays)} label maps of other cases made with other inference settings"
        raise UserError(Code.RECIPE_MISMATCH, out, finding, ELSEWHERE)
    failures = {name: why for name, why in before.failures.items() if _output(name) not in outputs}
    return replace(manifest, cases=tuple(stays), failures=failures)


def _is_same_use(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Whether settings of inference are the same; one that there was not yet had its default."""
    try:
        return InferenceSettings.model_validate(before) == InferenceSettings.model_validate(now)
    except ValidationError:
        return False


def _earlier(out: Path, planned: Manifest) -> Manifest | None:
    """The manifest of an earlier call with the same network; any other manifest is refused."""
    manifest = read_manifest(out, ELSEWHERE)
    if manifest is not None and manifest.weights != planned.weights:
        raise UserError(
            Code.PREDICTIONS_MISMATCH, out, f"holds label maps of another network, trained in {manifest.run}", ELSEWHERE
        )
    return manifest


def _files(names: Iterable[str], manifest: Manifest) -> set[str]:
    """All files that some cases may have, without those of the cases that a manifest lists."""
    everything = ExtraMaps(probabilities=True, uncertainty=True, pictures=True)
    kept = {file for case in manifest.cases for file in case.files}
    return {file for name in names for file in names_of(name, everything).all} - kept


def _end(out: Path, manifest: Manifest, done: Sequence[PredictedCase], failures: Mapping[str, UserError]) -> None:
    failed = _files(failures, manifest) & manifest.outputs
    for name in failed:
        (out / name).unlink(missing_ok=True)
    ended = failed | {name for case in done for name in case.files}
    replace(
        manifest,
        cases=tuple(sorted((*manifest.cases, *done), key=lambda case: case.case)),
        failures={**manifest.failures, **{name: str(error) for name, error in failures.items()}},
        unfinished=tuple(name for name in manifest.unfinished if name not in ended),
        ended=_now(),
    ).save(out)


HOST = torch.device("cpu")
GIB = 2**30

READ = 8
"""Bytes of a voxel as it is read and brought into order, where its file has at most 32 bits."""
SCALED = 12
"""Bytes of a prepared voxel while its intensities are brought to scale, the image itself included."""
IMAGE = 4
"""Bytes of a voxel and channel of the prepared image."""
COMPONENTS = 16
"""Bytes of a voxel while the largest components of its label map are found on the host."""
WRITTEN = 3
"""Copies of a map of bytes that there are while it is turned and written."""
SLABS = 2
"""Slabs of probabilities that there are at once: that under the windows, and the one that leaves it."""
NETWORK = 350
"""Bytes of a voxel of a window on its way through a network of the usual width."""


def host_bytes(grid: Grid, channels: int, predictor: Predictor, wanted: ExtraMaps) -> int:
    """The most bytes, about, that a scan takes while it is read, prepared, predicted and written.

    On a GPU, the windows and the search for components take its memory instead, which is not counted.
    """
    source, prepared = prod(grid.source_shape), prod(grid.prepared_shape)
    reading = channels * (READ * source + SCALED * prepared)
    image = channels * IMAGE * prepared
    maps = source * (1 + predictor.classes * wanted.probabilities + wanted.uncertainty)
    on_host = predictor.device.type == "cpu"
    channels_out = predictor.classes * (2 if wanted.uncertainty and predictor.doubt is not None else 1) + 1
    windows = image + maps + on_host * (channels_out * _slab_bytes(grid, predictor) + _window_bytes(predictor))
    components = image + maps + on_host * bool(predictor.settings.largest_component) * COMPONENTS * source
    return max(reading, windows, components, image + WRITTEN * maps)


def check_memory(grid: Grid, channels: int, predictor: Predictor, wanted: ExtraMaps, where: Path) -> None:
    """Refuse a scan that the host's free memory cannot hold."""
    needed, free = host_bytes(grid, channels, predictor, wanted), free_memory(HOST)
    if needed <= free:
        return
    finding = f"takes about {needed / GIB:.1f} GiB of memory and {free / GIB:.1f} GiB are free"
    fewer = "leave out --probabilities and --uncertainty, " if wanted.probabilities or wanted.uncertainty else ""
    raise UserError(
        Code.RECIPE_MISMATCH, where, finding, f"{fewer}close other programs, cut the scan or use a larger machine"
    )


def _window_bytes(predictor: Predictor) -> int:
    """Values within the network, of the windows that pass through it together."""
    return NETWORK * predictor.settings.windows_per_forward * prod(predictor.patch)


def _slab_bytes(grid: Grid, predictor: Predictor) -> int:
    """One channel under the windows: a patch deep along the first axis, or a few slices."""
    if len(predictor.patch) < len(grid.prepared_shape):
        depth, plane = predictor.settings.windows_per_forward, prod(grid.prepared_shape[:2])
    else:
        depth, plane = predictor.patch[0], prod(grid.prepared_shape[1:])
    return SLABS * 4 * depth * plane
