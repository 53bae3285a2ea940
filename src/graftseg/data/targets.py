"""Folders that a store may be made in."""

from collections.abc import Iterator
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.files import PARTIAL, read_json
from graftseg.core.permissions import refuse_closed
from graftseg.data.store import CASES, LOCK, MANIFEST, is_store

OF_CASES = (".image.npy", ".label.npy", ".json")


def check_target(out: Path, root: Path, *, anew: bool) -> None:
    """Refuse a folder that is something else, or a store of other data, unless that may be made ``anew``."""
    for folder in (out, out / CASES):
        refuse_closed(folder)
    if out.exists() and not out.is_dir():
        raise UserError(Code.TARGET_EXISTS, out, "this is a file", "name a folder for the store")
    if not out.exists() or not any(out.iterdir()):
        return
    if not is_store(out):
        raise UserError(
            Code.TARGET_EXISTS, out, "the folder is not empty and not a prepared store", "name a new folder"
        )
    recorded = _other_root(out, root)
    if recorded is not None and not (anew and _is_all_own(out)):
        raise UserError(
            Code.TARGET_EXISTS, out, f"the store was made from {recorded}, not from {root}", "name another folder"
        )


def clear_other(out: Path, root: Path) -> None:
    """Remove what a store of other data consists of; the manifest first, since it vouches for the rest."""
    if _other_root(out, root) is None or not _is_all_own(out):
        return
    (out / MANIFEST).unlink(missing_ok=True)
    for path in _entries(out / CASES):
        path.unlink()


def _other_root(out: Path, root: Path) -> str | None:
    """The data that a store was made from, where these are others."""
    for path in (out / MANIFEST, *sorted((out / CASES).glob("*.json"))):
        try:
            recorded = str(read_json(path)["root"])
        except (UserError, KeyError, TypeError):
            continue
        is_same = recorded == str(root) or Path(recorded).resolve() == root.resolve()
        return None if is_same else recorded
    return None


def _is_all_own(out: Path) -> bool:
    """Whether a folder holds nothing but what making a store writes; what a link leads to may be somebody's."""
    if out.is_symlink() or (out / CASES).is_symlink():
        return False
    own = {LOCK, MANIFEST, CASES}
    return all(path.name in own or path.name.startswith(PARTIAL) for path in _entries(out)) and all(
        path.is_file() and (path.name.endswith(OF_CASES) or path.name.startswith(PARTIAL))
        for path in _entries(out / CASES)
    )


def _entries(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.iterdir()) if folder.is_dir() else ())
