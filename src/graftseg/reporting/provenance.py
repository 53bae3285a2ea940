"""What the data of a run are called on its page: by the names of folders, never by where these lie."""

from dataclasses import dataclass
from pathlib import Path

from graftseg.core.files import read_object
from graftseg.data.store import Store, is_store
from graftseg.evaluation.testset import IMAGES
from graftseg.reporting.results import Results
from graftseg.reporting.text import folder_name


@dataclass(frozen=True)
class Provenance:
    """The name of the folder that a run was trained from, and that of the scans it was tested on; empty if unknown."""

    data: str = ""
    scans: str = ""


def provenance_of(store: Store | None, results: Results | None) -> Provenance:
    """Both as far as the store that the run was trained on and the manifest of its predictions tell them."""
    root = None if store is None else Path(store.root)
    return Provenance("" if root is None else folder_name(root), "" if results is None else _scans(results, root))


def _scans(results: Results, root: Path | None) -> str:
    folder = _images(results.folder / "manifest.json")
    if folder is None:
        return ""
    if is_store(folder):
        name = "" if root is None else folder_name(root)
        return f"test cases of {name}" if name else "test cases of the store"
    data = folder_name(folder.parent) if folder.name == IMAGES else ""
    return f"{data}/{folder.name}" if data else folder_name(folder)


def _images(manifest: Path) -> Path | None:
    """The one folder or store that all predicted scans come from."""
    cases = read_object(manifest).get("cases") if manifest.is_file() else None
    entries = [entry for entry in cases if isinstance(entry, dict)] if isinstance(cases, list) else []
    files = [manifest.parent / str(path) for entry in entries for path in entry.get("images") or ()]
    folders = {file.parent.parent if is_store(file.parent.parent) else file.parent for file in files}
    return folders.pop() if len(folders) == 1 else None
