"""Image files in unsupported formats, and how to convert them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from graftseg.core.phrases import counted
from graftseg.data.folders import visible_entries

CONVERT_VOLUME = "convert to .nii.gz"
CONVERSION_ADVICE = {
    **dict.fromkeys((".gif", ".webp"), "convert to .png"),
    **dict.fromkeys((".npy", ".npz", ".mat", ".h5", ".hdf5"), "save as .nii.gz, with the voxel spacing"),
    **dict.fromkeys((".img", ".hdr", ".mgz", ".mgh", ".mnc", ".nii.bz2"), CONVERT_VOLUME),
}
"""How to convert unsupported image files, by suffix."""


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
