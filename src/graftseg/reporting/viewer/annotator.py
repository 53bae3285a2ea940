"""The cases that can be annotated: their drafts, states and order."""

from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Case
from graftseg.data.annotation import STATES, Action, AnnotationFolder, Canvas, Draft
from graftseg.data.dataset import Dataset
from graftseg.data.formats.scan import Scan
from graftseg.reporting.viewer.case_reader import CaseReader, in_background
from graftseg.reporting.viewer.collection import Collection, ViewedCase
from graftseg.reporting.viewer.suggestions import Suggestions
from graftseg.reporting.viewer.volumes import Turn


class Annotator:
    """The cases of a folder of data and their drafts. The network of a run suggests label maps and ranks the cases.

    The numbers of the cases stay the same as long as the program runs. Only their order depends on the network.
    """

    def __init__(
        self, dataset: Dataset, folder: AnnotationFolder, suggestions: Suggestions, cases: Sequence[Case]
    ) -> None:
        self.cases, self.folder, self.suggestions = list(cases), folder, suggestions
        self._dataset, self._drafts, self._lock = dataset, dict[int, Draft](), Lock()
        self._states = folder.states()
        self.collection = self._collect()
        self.reader = CaseReader(self.collection.cases)
        self.ranking = self._rank()
        self._finish_interrupted()

    def _collect(self) -> Collection:
        viewed = []
        for case in self.cases:
            names = {"prediction": "labels", "uncertainty": "uncertainty"}
            maps = {layer: partial(self._predicted, case, name) for layer, name in names.items()}
            viewed.append(ViewedCase(case.name, case.split, partial(self._dataset.reader.image, case), maps))
        return Collection("run", self.suggestions.run.path.resolve().name, self.suggestions.classes, tuple(viewed))

    def _predicted(self, case: Case, name: str) -> Scan:
        array = getattr(self.suggestions.maps(case), name)
        return Scan(array, self._dataset.reader.image(case).geometry)

    def _rank(self) -> dict[str, dict[str, Any]]:
        unlabeled = [case.name for case in self.cases if case.label is None]
        return self.suggestions.ranking(self.folder.ranking_file, unlabeled) if unlabeled else {}

    def use_run(self, run: RunFolder) -> None:
        """Predict and rank with the network of another run, such as a continuation of this run."""
        self.suggestions = Suggestions(run, self._dataset, self.suggestions.device)
        for number in range(len(self.cases)):
            self.reader.forget(number)
        self.ranking = self._rank()
        self.prefetch()

    def draft(self, number: int) -> Draft:
        """Return the draft of a case. Raise a UserError if its label map is in a format that cannot be saved."""
        self.folder.target(self.cases[number])
        with self._lock:
            if number not in self._drafts:
                self._drafts[number] = self._open(number)
            return self._drafts[number]

    def _open(self, number: int) -> Draft:
        """Open a draft, or start a new one from the label map of the case or from the prediction."""
        case, canvas = self.cases[number], self._canvas(number)
        folder = self.folder.draft(case.name)
        if Draft.exists(folder):
            return Draft(folder, canvas)
        if case.label is not None:
            labels = self._dataset.reader.label(case).array.astype(np.uint8)
            return Draft.begin(folder, canvas, labels, {"from": "label"})
        about: dict[str, object] = {"from": "prediction", "model": self.suggestions.model}
        return Draft.begin(folder, canvas, self.suggestions.maps(case).labels, about)

    def restart(self, number: int) -> int:
        """Discard all strokes of a draft and return the number of its last stroke.

        A draft that started from the prediction of an earlier network starts again from the current prediction.
        """
        draft = self.draft(number)
        if draft.about["from"] == "label" or draft.about["model"] == self.suggestions.model:
            return draft.reset()
        self._remove(number, draft)
        again = self.draft(number)
        again.set_seconds(draft.seconds)
        return again.count

    def _remove(self, number: int, draft: Draft) -> None:
        draft.remove()
        with self._lock:
            self._drafts.pop(number, None)

    def _canvas(self, number: int) -> Canvas:
        geometry = self.reader.scan(number).geometry
        turn = Turn.of(geometry)
        shape = turn.to_volume(np.empty(geometry.shape, np.uint8)).shape
        return Canvas(
            geometry,
            lambda labels: turn.to_volume(labels).ravel(order="F"),
            lambda drawing: turn.to_scan(drawing.reshape(shape, order="F")),
        )

    def finish(self, number: int, action: Action) -> dict[str, Any]:
        """Log an action, and save the label map of an accepted case. Only a skipped case keeps its draft.

        The time of a skipped case is counted from 0 again, so that the times in the log can be added up. Return the
        saved file and the next case, or None if there is none, and the number of changed voxels.
        """
        case, draft = self.cases[number], self.draft(number)
        changed, file = draft.changed, None
        if action == "accept":
            saved = self.folder.save(case, draft.labels, self.reader.scan(number).geometry)
            file = f"{saved.parent.name}/{saved.name}"
            self.cases[number] = Case(case.name, case.images, saved, "labeled")
        self._record(number, action, changed, draft.seconds)
        if action == "skip":
            draft.set_seconds(0.0)
        else:
            self._remove(number, draft)
        return {"file": file, "changed": changed, "next": self.next_case()}

    def _record(self, number: int, action: Action, changed: int, seconds: float) -> None:
        name = self.cases[number].name
        about = {"changed_voxels": changed, "seconds": round(seconds, 1), "model": self.suggestions.model}
        self.folder.log(name, action, about)
        self._states[name] = STATES[action]

    def _finish_interrupted(self) -> None:
        """Finish saves that were interrupted after the label map was written."""
        for number, case in enumerate(self.cases):
            has_draft = Draft.exists(self.folder.draft(case.name))
            if case.label is None or not has_draft or not self.folder.can_save(case):
                continue
            draft = self.draft(number)
            # an unchanged draft of a labeled case always equals the label map, so equality does not show a save
            if (draft.changed or draft.about["from"] == "prediction") and self.folder.is_saved(case, draft):
                self._record(number, "accept", draft.changed, draft.seconds)
                self._remove(number, draft)

    def state(self, number: int) -> str:
        """Return the state of a case: open, accepted, skipped or rejected."""
        return self._states.get(self.cases[number].name, "open")

    def order(self) -> list[int]:
        """Return the numbers of the cases, most useful first. Cases without a rank come last, by name."""

        def key(number: int) -> tuple[float, str]:
            name = self.cases[number].name
            return self.ranking.get(name, {}).get("rank", float("inf")), name

        return sorted(range(len(self.cases)), key=key)

    def next_case(self) -> int | None:
        """Return the most useful case that is neither labeled nor rejected, open cases before skipped cases."""
        unlabeled = [number for number in self.order() if self.cases[number].label is None]
        for state in ("open", "skipped"):
            for number in unlabeled:
                if self.state(number) == state:
                    return number
        return None

    def prefetch(self) -> None:
        """Predict the next case in the background, so that it opens at once."""
        if (number := self.next_case()) is not None:
            in_background(partial(self.suggestions.maps, self.cases[number]))
