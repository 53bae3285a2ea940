"""What a folder holds."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from graftseg.core.errors import Code, UserError


def visible_entries(folder: Path) -> list[Path]:
    """What a folder holds, by name, without hidden files (``._case.nii.gz``, ``.DS_Store``)."""
    refuse_broken_link(folder)
    try:
        entries: Iterable[Path] = folder.iterdir() if folder.is_dir() else ()
        return sorted(path for path in entries if not path.name.startswith("."))
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, folder, f"the folder cannot be read ({error.strerror})", "check its permissions"
        ) from None


def refuse_broken_link(path: Path) -> None:
    """Raise a UserError for a link that leads nowhere, or back to itself: what it stood for must not be left out."""
    if path.is_symlink() and not path.exists():
        raise UserError(Code.READ_FAILED, path, "the link leads nowhere", "correct it, or remove it")


def with_children(folder: Path) -> list[Path]:
    """A folder and the folders in it."""
    return [folder, *(path for path in visible_entries(folder) if path.is_dir())]


LOSSY = "convert to .png, best from the original: JPEG loses detail"
PICTURES = "convert to .png"
ARRAYS = "save as .nii.gz, with the spacing of their voxels"
VOLUMES = "convert to .nii.gz"
CONVERSION_ADVICE = {
    **dict.fromkeys((".jpg", ".jpeg"), LOSSY),
    **dict.fromkeys((".bmp", ".gif", ".webp"), PICTURES),
    **dict.fromkeys((".npy", ".npz", ".mat", ".h5", ".hdf5"), ARRAYS),
    **dict.fromkeys((".img", ".hdr", ".mgz", ".mgh", ".mnc", ".nii.bz2"), VOLUMES),
}
"""What to do with files of an ending that images have."""


def unsupported_ending(name: str) -> str | None:
    """The ending of a file's name if it is one that images have and that is not read."""
    return next((ending for ending in CONVERSION_ADVICE if name.lower().endswith(ending)), None)


def most_common_ending(names: Sequence[str]) -> str | None:
    """The ending that most of the names that are images by it have; None if there is none."""
    endings = Counter(ending for name in names if (ending := unsupported_ending(name)) is not None)
    return max(endings, key=endings.__getitem__, default=None)


def unsupported_images_in(folder: Path) -> tuple[str, str] | None:
    """What kind of images that are not read a folder holds, and what to do with them; None if it holds none."""
    names = [path.name for path in visible_entries(folder) if path.is_file()]
    ending = most_common_ending(names)
    if ending is None:
        return None
    count = sum(unsupported_ending(name) == ending for name in names)
    files = f"1 {ending} file is there" if count == 1 else f"{count} {ending} files are there"
    return f"{files}, which cannot be read", CONVERSION_ADVICE[ending]
