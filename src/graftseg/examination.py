"""A run and the supervised one beside it on test scans: label maps, scores, how far they are apart, and a report."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graftseg import api
from graftseg.comparison import Beside
from graftseg.data.store import is_store, open_store
from graftseg.ensembles import segmenters_of
from graftseg.errors import UserError
from graftseg.evaluation import Evaluation
from graftseg.origin import trained_on
from graftseg.paired import Effect
from graftseg.prediction import ELSEWHERE
from graftseg.runs import RunFolder

IMAGES, LABELS = "imagesTs", "labelsTs"
NAME_THEM = f"name a folder with {IMAGES}/ and {LABELS}/, a store with test cases, or --test-images and --test-labels"
LIKELY = 0.05
"""Below this p of Wilcoxon's test, and with an interval on one side of zero, a difference is more than chance."""
Folder = str | Path


@dataclass(frozen=True)
class Unseen:
    """Where test scans and their label maps lie; both the same where it is a prepared store."""

    images: Path
    labels: Path


@dataclass(frozen=True)
class Examined:
    """The scores of a run and, where there is one, of its baseline; ``beside`` sets them side by side.

    ``unready`` is a baseline that was begun and has not ended, which nothing can be said of.
    """

    scores: dict[Path, Evaluation]
    beside: Beside | None
    report: Path
    unready: Path | None = None

    def verdict(self) -> Iterator[str]:
        """What the unlabeled scans were worth, in one sentence; nothing without a baseline."""
        if self.unready is not None:
            yield f"{self.unready} has not been trained to its end, so that nothing stands beside the run"
        if self.beside is not None:
            found = [effect for pairs, effect in self.beside.effects if pairs.figure == "dice"]
            # the mean over classes is the last, and with a single class the class itself
            yield _worth(found[-1])


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
    scans, baseline = _unseen(folder, data, images, labels), folder.baseline
    ready = _has_ended(baseline)
    scores = {
        one.path: _scored(one, scans, device, allow_missing=allow_missing)
        for one in (folder, *([baseline] if ready else []))
    }
    beside = api.compare(baseline.path, folder.path)[0] if ready else None
    unready = baseline.path if baseline.path.is_dir() and not ready else None
    return Examined(scores, beside, api.report(folder.path), unready)


def _unseen(run: RunFolder, data: Folder | None, images: Folder | None, labels: Folder | None) -> Unseen:
    if images is None and labels is None:
        return _arranged(Path(data)) if data is not None else _by_default(run)
    if data is not None or images is None or labels is None:
        raise UserError("test", "the test scans are not named in one way", NAME_THEM)
    for one in (Path(images), Path(labels)):
        if not one.is_dir():
            raise UserError(one, "there is no such folder", "name a folder of scans")
    return Unseen(Path(images), Path(labels))


def _arranged(data: Path) -> Unseen:
    if is_store(data):
        return Unseen(data, data)
    if not data.is_dir():
        raise UserError(data, "there is no such folder", NAME_THEM)
    if not _is_arranged(data):
        raise UserError(data, f"holds no test scans with labels in {IMAGES}/ and {LABELS}/", NAME_THEM)
    return Unseen(data / IMAGES, data / LABELS)


def _by_default(run: RunFolder) -> Unseen:
    """What the run was trained from: the scans themselves if they are still there, or else the store."""
    store = open_store(trained_on(segmenters_of(run)[0]))
    root = Path(store.root)
    if _is_arranged(root):
        return Unseen(root / IMAGES, root / LABELS)
    if not store.of("test"):
        raise UserError(root, "no test scans with labels are known of this run", NAME_THEM)
    return Unseen(store.path, store.path)


def _is_arranged(folder: Path) -> bool:
    return (folder / IMAGES).is_dir() and (folder / LABELS).is_dir()


def _has_ended(run: RunFolder) -> bool:
    if not run.folds_file.is_file():
        return run.exists and run.manifest().get("status") == "finished"
    try:
        return bool(segmenters_of(run))
    except UserError:
        return False


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


def _worth(effect: Effect) -> str:
    more = f"{abs(effect.difference):.2f} points {'higher' if effect.difference >= 0 else 'lower'}"
    said = f"with the unlabeled scans the mean Dice is {more} than without"
    if math.isnan(effect.low):
        return f"{said}, in a single case"
    said += f" (95 % interval {effect.low:+.2f} to {effect.high:+.2f}), better in {effect.better} of {effect.count}"
    if effect.low <= 0 <= effect.high or not effect.p < LIKELY:
        return f"{said} cases: that does not tell whether they helped"
    return f"{said} cases: they {'helped' if effect.low > 0 else 'did harm'}"
