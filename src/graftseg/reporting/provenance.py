"""Names of the training and test data on a page: names of folders, never full paths."""

from dataclasses import dataclass
from pathlib import Path

from graftseg.data.store import Store, is_store
from graftseg.evaluation.testset import IMAGES
from graftseg.reporting.folder import read_entries
from graftseg.reporting.results import Results
from graftseg.reporting.text import folder_name


@dataclass(frozen=True)
class Provenance:
    """The names of the folder of the training data and of the test scans; empty if unknown."""

    data: str = ""
    scans: str = ""


def provenance_of(store: Store | None, results: Results | None) -> Provenance:
    """Return the names, from the store of the run and the manifest of its predictions."""
    root = None if store is None else Path(store.root)
    return Provenance("" if root is None else folder_name(root), "" if results is None else _scans(results, root))


def _scans(results: Results, root: Path | None) -> str:
    folder = _images(results.folder)
    if folder is None:
        return ""
    if is_store(folder):
        name = "" if root is None else folder_name(root)
        return f"test cases of {name}" if name else "test cases of the store"
    data = folder_name(folder.parent) if folder.name == IMAGES else ""
    return f"{data}/{folder.name}" if data else folder_name(folder)


def _images(predictions: Path) -> Path | None:
    """Return the folder or store of all predicted scans; None if there are several."""
    files = [predictions / path for entry in read_entries(predictions) for path in entry.get("images", [])]
    folders = {file.parent.parent if is_store(file.parent.parent) else file.parent for file in files}
    return folders.pop() if len(folders) == 1 else None
