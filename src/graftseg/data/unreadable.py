"""Files that stand where scans are looked for and cannot be read: what they are, and what to make of them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from graftseg.data.folders import visible

LOSSY = "convert to .png, best from the original: JPEG loses detail"
PICTURES = "convert to .png"
ARRAYS = "save as .nii.gz, with the spacing of their voxels"
VOLUMES = "convert to .nii.gz"
ADVICE = {
    **dict.fromkeys((".jpg", ".jpeg"), LOSSY),
    **dict.fromkeys((".bmp", ".gif", ".webp"), PICTURES),
    **dict.fromkeys((".npy", ".npz", ".mat", ".h5", ".hdf5"), ARRAYS),
    **dict.fromkeys((".img", ".hdr", ".mgz", ".mgh", ".mnc", ".nii.bz2"), VOLUMES),
}
"""What to do with files of an ending that images have."""


def ending_of(name: str) -> str | None:
    """The ending of a file's name if it is one that images have and that is not read."""
    return next((ending for ending in ADVICE if name.lower().endswith(ending)), None)


def usual_ending(names: Sequence[str]) -> str | None:
    """The ending that most of the names that are images by it have; None if there is none."""
    endings = Counter(ending for name in names if (ending := ending_of(name)) is not None)
    return max(endings, key=endings.__getitem__, default=None)


def unread_in(folder: Path) -> tuple[str, str] | None:
    """What kind of images that are not read a folder holds, and what to do with them; None if it holds none."""
    names = [path.name for path in visible(folder) if path.is_file()]
    ending = usual_ending(names)
    if ending is None:
        return None
    count = sum(ending_of(name) == ending for name in names)
    files = f"1 {ending} file is there" if count == 1 else f"{count} {ending} files are there"
    return f"{files}, which cannot be read", ADVICE[ending]
