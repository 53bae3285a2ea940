"""The network of a run for the annotation: its predictions of scans and its ranking of unlabeled scans."""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from graftseg.core.files import read_json, write_json
from graftseg.core.run_folder import RunFolder, ensemble_members
from graftseg.core.types import Case
from graftseg.data.dataset import Dataset
from graftseg.inference.ensemble import Ensemble, folder_of_network
from graftseg.inference.label_maps import ExtraMaps, ScanMaps
from graftseg.inference.ranking import DEFAULT_ORDER
from graftseg.inference.ranking.rank import rank_run

MAPS = ExtraMaps(uncertainty=True)
CACHED_PREDICTIONS = 4  # number of predictions that are kept in memory


class Suggestions:
    """The network of a run, its latest predictions, and its ranking of the unlabeled scans."""

    def __init__(self, run: RunFolder, dataset: Dataset, device: torch.device) -> None:
        folder, _ = folder_of_network(run, "shipped", None)
        self.run, self._dataset, self.device = run, dataset, device
        self._networks = Ensemble.load(ensemble_members(folder, None), device, (), "shipped")
        self._network_folder = folder
        self._cache: dict[str, ScanMaps] = {}
        self._lock = Lock()

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the class names, background first."""
        return self._networks.classes

    @property
    def model(self) -> str:
        """Return the checksum of the weights."""
        return self._networks.identity()

    def maps(self, case: Case) -> ScanMaps:
        """Return the label map and the uncertainty map of a scan."""
        with self._lock:
            if case.name not in self._cache:
                while len(self._cache) >= CACHED_PREDICTIONS:
                    del self._cache[next(iter(self._cache))]
                scan = self._dataset.reader.image(case)
                self._cache[case.name] = self._networks.predict_scan(scan, case.images[0], MAPS)
            return self._cache[case.name]

    def ranking(self, file: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return rank, uncertainty and reasons by case. ``file`` stores the ranking for the next call."""
        stored = read_json(file) if file.is_file() else {}
        # a stored ranking may be from another network or in another order
        is_current = stored.get("model") == self.model and stored.get("by", "uncertainty") == DEFAULT_ORDER
        ranked: dict[str, dict[str, Any]] = stored["cases"] if is_current else {}
        if not set(names) <= ranked.keys():
            rows = rank_run(self._network_folder, self._dataset.root, None, self.device).rows
            ranked = {
                row.case: {"rank": rank, "uncertainty": row.uncertainty, "reasons": list(row.reasons)}
                for rank, row in enumerate(rows, start=1)
            }
            write_json(file, {"model": self.model, "by": DEFAULT_ORDER, "cases": ranked})
        return {name: ranked[name] for name in names if name in ranked}
