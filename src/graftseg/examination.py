"""A run and the supervised one beside it on test scans: label maps, scores, how far they are apart, and a report."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from graftseg import api
from graftseg.baselines import baseline_of
from graftseg.comparison import Beside
from graftseg.data.layouts import scan_cases
from graftseg.data.names import same_names
from graftseg.data.store import is_store, open_store
from graftseg.ensembles import segmenters_of
from graftseg.errors import UserError
from graftseg.evaluation import Evaluation
from graftseg.origin import trained_on
from graftseg.prediction import ELSEWHERE
from graftseg.recipe import differences, load_recipe
from graftseg.references import references_in
from graftseg.runs import RunFolder
from graftseg.verdicts import verdict

IMAGES, LABELS = "imagesTs", "labelsTs"
NAME_THEM = f"name a folder with {IMAGES}/ and {LABELS}/, a store with test cases, or --test-images and --test-labels"
FOLDS = "without any, train with --folds, which scores labeled scans by networks that never saw them"
Folder = str | Path


@dataclass(frozen=True)
class Unseen:
    """Where test scans and their label maps lie; both the same where it is a prepared store."""

    images: Path
    labels: Path


@dataclass(frozen=True)
class Examined:
    """The scores of a run and, where there is one, of its baseline; ``beside`` sets them side by side.

    ``warnings`` are what a reader of the figures must know.
    """

    scans: Unseen
    scores: dict[Path, Evaluation] = field(repr=False)
    beside: Beside | None = field(repr=False)
    report: Path
    warnings: tuple[str, ...] = ()

    def verdict(self) -> Iterator[str]:
        """What was found, in sentences; with a baseline, what the unlabeled scans were worth."""
        yield from self.warnings
        yield from (sentence for path, one in self.scores.items() for sentence in _never_found(path, one))
        if self.beside is not None:
            found = [effect for pairs, effect in self.beside.effects if pairs.figure == "dice"]
            # the mean over classes is the last, and with a single class the class itself
            yield verdict(found[-1])


def test(
    run: Folder,
    data: Folder | None = None,
    *,
    images: Folder | None = None,
    labels: Folder | None = None,
    device: str = "auto",
    allow_missing: bool = False,
) -> Examined:
    """Predict test scans with a run and its baseline, score both and write the report of the run.

    ``data`` is a folder with ``imagesTs`` and ``labelsTs`` or a prepared store, by default what the run was trained
    from; ``images`` and ``labels`` name folders one by one.
    """
    folder = RunFolder(Path(run))
    networks = segmenters_of(folder)
    scans, baseline = _unseen(networks[0], data, images, labels), folder.baseline
    names = _names(scans, networks[0], allow_missing=allow_missing)
    ready = _has_ended(baseline)
    if ready:
        _check_baseline(folder)
    both = (folder, *([baseline] if ready else []))
    scores = {one.path: _scored(one, scans, device, allow_missing=allow_missing) for one in both}
    beside = api.compare(baseline.path, folder.path)[0] if ready else None
    warnings = (*_seen_before(names, networks), *([] if ready else _not_ended(baseline)), *_told_elsewhere(folder))
    return Examined(scans, scores, beside, api.report(folder.path), warnings)


def _unseen(run: RunFolder, data: Folder | None, images: Folder | None, labels: Folder | None) -> Unseen:
    if images is None and labels is None:
        return _arranged(Path(data)) if data is not None else _by_default(run)
    if data is not None or images is None or labels is None:
        raise UserError("test", "the test scans are not named in one way", NAME_THEM)
    return Unseen(_folder(Path(images)), _folder(Path(labels)))


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise UserError(path, "this is a file" if path.exists() else "there is no such folder", NAME_THEM)
    return path


def _arranged(data: Path) -> Unseen:
    if is_store(data):
        return Unseen(data, data)
    if not _is_arranged(_folder(data)):
        raise UserError(data, f"holds no test scans with labels in {IMAGES}/ and {LABELS}/", NAME_THEM)
    return Unseen(data / IMAGES, data / LABELS)


def _by_default(run: RunFolder) -> Unseen:
    """What the run was trained from: the scans themselves if they are still there, or else the store."""
    store = open_store(trained_on(run, NAME_THEM))
    root = Path(store.root)
    if _is_arranged(root):
        return Unseen(root / IMAGES, root / LABELS)
    if not store.of("test"):
        raise UserError(root, "no test scans with labels are known of this run", f"{NAME_THEM}; {FOLDS}")
    return Unseen(store.path, store.path)


def _is_arranged(folder: Path) -> bool:
    return (folder / IMAGES).is_dir() and (folder / LABELS).is_dir()


def _names(scans: Unseen, run: RunFolder, *, allow_missing: bool) -> set[str]:
    """The cases to test; what lacks its partner is refused before anything is predicted."""
    if is_store(scans.images):
        return set(references_in(scans.labels))
    found, failures = scan_cases(scans.images, run.begun()["store"]["channels"])
    names = {case.name for case in found} | set(failures)
    labels = references_in(scans.labels).keys()
    both = same_names(names, labels)
    if not both:
        finding = f"none of its {len(labels)} label maps has the name of a scan in {scans.images}"
        raise UserError(scans.labels, finding, "give the two files of a case the same name, without _0000 for labels")
    for folder, what, alone in (
        (scans.images, "scan without a label map", names - both),
        (scans.labels, "label map without a scan", labels - same_names(labels, names)),
    ):
        if alone and not allow_missing:
            finding = f"{min(alone)} is a {what} of the same name ({len(alone)} are)"
            raise UserError(folder, finding, "add what is missing, or leave them out with --allow-missing")
    return both


def _has_ended(run: RunFolder) -> bool:
    if not run.folds_file.is_file():
        return run.exists and run.manifest().get("status") == "finished"
    try:
        return bool(segmenters_of(run))
    except UserError:
        return False


def _check_baseline(run: RunFolder) -> None:
    """A folder of that name may hold another run, whose difference would be due to something else."""
    expected, found = baseline_of(load_recipe(run.recipe_file)), load_recipe(run.baseline.recipe_file)
    other = differences(expected, found)
    stores = [{one.begun()["store"]["identity"] for one in segmenters_of(both)} for both in (run, run.baseline)]
    if other or stores[0] != stores[1]:
        apart = ", ".join(other) or "the scans"
        finding = f"not what the labeled scans alone give in place of the run (differ: {apart})"
        raise UserError(run.baseline.path, finding, "move it away; graftseg compare sets any two runs side by side")


def _not_ended(baseline: RunFolder) -> Iterator[str]:
    if baseline.path.exists():
        yield f"{baseline.path} has not been trained to its end, so that nothing stands beside the run"


def _told_elsewhere(run: RunFolder) -> Iterator[str]:
    if run.folds_file.is_file():
        yield f"the report is about the folds; scores of the test scans are in {run.predictions}"


def _seen_before(names: set[str], networks: list[RunFolder]) -> Iterator[str]:
    stores = [network.begun()["store"] for network in networks]
    known = {str(name) for store in stores for key in ("labeled", "unlabeled") for name in store.get(key, ())}
    if both := sorted(same_names(names, known)):
        verb = "has the name of a scan" if len(both) == 1 else "have the names of scans"
        yield (
            f"{len(both)} of {len(names)} test cases {verb} in the training ({both[0]}): if they are the same, "
            "the figures say nothing of new scans"
        )


def _never_found(path: Path, evaluation: Evaluation) -> Iterator[str]:
    for label, name in sorted({(row.label, row.name) for row in evaluation.rows}):
        rows = [row for row in evaluation.rows if row.label == label and not math.isnan(row.dice)]
        if rows and not any(row.dice > 0 for row in rows):
            yield f"{path} finds {name} right in none of {len(rows)} cases, which makes its distances large"


def _scored(run: RunFolder, scans: Unseen, device: str, *, allow_missing: bool) -> Evaluation:
    """Scores of these scans alone: the folder may hold label maps of others, even of scans that were trained on."""
    try:
        predicted = api.predict(run.path, scans.images, device=device)
    except UserError as error:
        if error.remedy == ELSEWHERE:
            raise UserError(error.where, error.finding, f"move {run.predictions} away and test again") from None
        raise
    if predicted.failures:
        raise predicted.failures[0]
    names = {case.case for case in predicted.cases}
    return api.evaluate(predicted.folder, scans.labels, allow_missing=allow_missing, only=names)
