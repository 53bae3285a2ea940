"""Where scans lie, when they are not arranged as one folder: a folder each of images, labels and unlabeled images."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Split

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sources:
    """Folders of scans; it stands wherever a folder of data does.

    An image in ``labeled_images`` that has no label map in ``labels`` counts as unlabeled.
    """

    labeled_images: Path
    labels: Path
    unlabeled: Path | None = None
    test_images: Path | None = None
    test_labels: Path | None = None

    def __post_init__(self) -> None:
        for name, folder in vars(self).items():
            if folder is not None:
                # people write paths as text
                object.__setattr__(self, name, Path(folder))
        if self.test_labels is not None and self.test_images is None:
            raise UserError(
                Code.OPTION_CONFLICT,
                self.test_labels,
                "test labels without test images",
                "name the images as --test-images too",
            )
        for images, labels in ((self.labeled_images, self.labels), (self.test_images, self.test_labels)):
            if labels is not None and images is not None and images.resolve() == labels.resolve():
                raise UserError(
                    Code.OPTION_CONFLICT, labels, "images and labels are the same folder", "keep them in two"
                )
        if self._is_one_heap:
            log.warning(
                "%s: labeled and unlabeled images are the same folder; those without a label map count as unlabeled",
                self.unlabeled,
            )

    @property
    def _is_one_heap(self) -> bool:
        return self.unlabeled is not None and self.unlabeled.resolve() == self.labeled_images.resolve()

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that are named."""
        return tuple(folder for folder in vars(self).values() if folder is not None)

    @property
    def root(self) -> Path:
        """The smallest folder that holds them all."""
        return Path(os.path.commonpath([folder.resolve() for folder in self.folders]))

    def resolve(self) -> Path:
        """The same; what is asked of a path to compare it with another can be asked here."""
        return self.root

    def __str__(self) -> str:
        return str(self.root)

    @property
    def places(self) -> tuple[tuple[Path, Path | None, Split], ...]:
        """Images, their labels and the split of what is in both; a folder that is named twice is read once."""
        found: list[tuple[Path, Path | None, Split]] = [(self.labeled_images, self.labels, "labeled")]
        if self.unlabeled is not None and not self._is_one_heap:
            found.append((self.unlabeled, None, "unlabeled"))
        if self.test_images is not None:
            found.append((self.test_images, self.test_labels, "test"))
        return tuple(found)


Data = Path | Sources


def as_data(data: str | Path | Sources) -> Data:
    """Data as a person names them: a path, as text or not, or several folders."""
    return data if isinstance(data, Sources) else Path(data)
