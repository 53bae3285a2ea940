"""List the entries of a folder, and describe image files in unsupported formats."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import counted

CONVERT_VOLUME = "convert to .nii.gz"
CONVERSION_ADVICE = {
    **dict.fromkeys((".jpg", ".jpeg"), "convert to .png, if possible from the original, because JPEG loses detail"),
    **dict.fromkeys((".bmp", ".gif", ".webp"), "convert to .png"),
    **dict.fromkeys((".npy", ".npz", ".mat", ".h5", ".hdf5"), "save as .nii.gz, with the voxel spacing"),
    **dict.fromkeys((".img", ".hdr", ".mgz", ".mgh", ".mnc", ".nii.bz2"), CONVERT_VOLUME),
}
"""How to convert unsupported image files, by suffix."""


def visible_entries(folder: Path) -> list[Path]:
    """Return the entries of a folder, sorted by name and without hidden files (``._case.nii.gz``, ``.DS_Store``)."""
    refuse_broken_link(folder)
    entries: Iterable[Path] = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in entries if not path.name.startswith("."))


def refuse_broken_link(path: Path) -> None:
    """Raise a UserError for a broken link, so that its target is not silently skipped."""
    if path.is_symlink() and not path.exists():
        raise UserError(Code.READ_FAILED, path, "broken link", "correct or remove it")


def require_folder(path: Path, remedy: str) -> None:
    """Raise a UserError unless the path is a folder."""
    if not path.exists():
        raise UserError(Code.FOLDER_MISSING, path, "the folder does not exist", remedy)
    if not path.is_dir():
        raise UserError(Code.NOT_A_FOLDER, path, "a file, not a folder", remedy)


def with_children(folder: Path) -> list[Path]:
    """Return a folder and its direct subfolders."""
    return [folder, *(path for path in visible_entries(folder) if path.is_dir())]


def unsupported_ending(name: str) -> str | None:
    """Return the suffix of an image file in an unsupported format, or None for other files."""
    return next((ending for ending in CONVERSION_ADVICE if name.lower().endswith(ending)), None)


def most_common_ending(names: Sequence[str]) -> str | None:
    """Return the most common suffix of unsupported image files, or None if there are none."""
    endings = Counter(filter(None, map(unsupported_ending, names)))
    return max(endings, key=endings.__getitem__, default=None)


def unsupported_images_in(folder: Path) -> tuple[str, str] | None:
    """Describe the most common unsupported image files of a folder and how to convert them, or return None."""
    names = [path.name for path in visible_entries(folder) if path.is_file()]
    ending = most_common_ending(names)
    if ending is None:
        return None
    files = counted(sum(unsupported_ending(name) == ending for name in names), f"{ending} file")
    return f"{files}, which cannot be read", CONVERSION_ADVICE[ending]
