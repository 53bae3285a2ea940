"""Folders that tests may change: the next test gets the first state back."""

import shutil
from pathlib import Path


class Restored:
    """Keeps a copy of a folder, so that an expensive folder is made only once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._copy = folder, folder.with_name(f"{folder.name}-first-state")
        shutil.copytree(folder, self._copy, symlinks=True)

    def again(self) -> Path:
        """Restore the folder in its place, because runs and stores contain absolute paths."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._copy, self.folder, symlinks=True)
        return self.folder
