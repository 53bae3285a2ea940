"""Separate folders of images, labels and unlabeled images, as an alternative to one folder of data."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Split

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sources:
    """Folders of scans, accepted by all functions that take a folder of data."""

    labeled_images: Path  # images without a label map in ``labels`` are unlabeled
    labels: Path
    unlabeled: Path | None = None
    test_images: Path | None = None
    test_labels: Path | None = None

    def __post_init__(self) -> None:
        for name, folder in vars(self).items():
            if folder is not None:
                object.__setattr__(self, name, Path(folder))
        if self.test_labels is not None and self.test_images is None:
            finding = "test labels without test images"
            raise UserError(Code.OPTION_CONFLICT, self.test_labels, finding, "also pass --test-images")
        for images, labels in ((self.labeled_images, self.labels), (self.test_images, self.test_labels)):
            if labels is not None and images is not None and images.resolve() == labels.resolve():
                finding = "images and labels are in the same folder"
                raise UserError(Code.OPTION_CONFLICT, labels, finding, "keep them in two folders")
        if self._is_unlabeled_repeated:
            message = "%s: labeled and unlabeled images are in one folder; images without a label map are unlabeled"
            logger.warning(message, self.unlabeled)

    @property
    def _is_unlabeled_repeated(self) -> bool:
        return self.unlabeled is not None and self.unlabeled.resolve() == self.labeled_images.resolve()

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders that are not None."""
        return tuple(folder for folder in vars(self).values() if folder is not None)

    @property
    def root(self) -> Path:
        """The deepest folder that contains all folders."""
        return Path(os.path.commonpath([folder.resolve() for folder in self.folders]))

    def resolve(self) -> Path:
        """Return the root, for code that compares resolved paths."""
        return self.root

    def __str__(self) -> str:
        return str(self.root)

    @property
    def folder_pairs(self) -> tuple[tuple[Path, Path | None, Split], ...]:
        """Tuples of image folder, label folder and split. ``unlabeled`` is omitted if it equals ``labeled_images``."""
        pairs: list[tuple[Path, Path | None, Split]] = [(self.labeled_images, self.labels, "labeled")]
        if self.unlabeled is not None and not self._is_unlabeled_repeated:
            pairs.append((self.unlabeled, None, "unlabeled"))
        if self.test_images is not None:
            pairs.append((self.test_images, self.test_labels, "test"))
        return tuple(pairs)


Data = Path | Sources


def as_data(data: str | Path | Sources) -> Data:
    """Convert a string to a path. Return ``Sources`` unchanged."""
    return data if isinstance(data, Sources) else Path(data)


def single_folder(data: str | Path | Sources) -> Path:
    """Return the data folder. Raise a UserError for separate folders, which a benchmark does not have."""
    if isinstance(data, Sources):
        finding = "cannot be combined with separate folders"
        raise UserError(Code.OPTION_CONFLICT, "--benchmark", finding, "pass one folder")
    return Path(data)
