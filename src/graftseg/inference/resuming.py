"""Shards of an archive, and cases that an earlier prediction has finished."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.core.predictions import PredictedCase
from graftseg.core.reading import sha256_of
from graftseg.data.scans import files_of
from graftseg.inference.ensemble import Ensemble
from graftseg.inference.inputs import Source
from graftseg.inference.label_maps import ExtraMaps, names_of

WITHOUT_EFFECT = "windows_per_forward"  # inference setting that changes no label map


@dataclass(frozen=True)
class Shard:
    """Part ``number`` (from 1) of ``count`` parts of an archive. The shard of a case depends only on its name."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read a shard such as ``3/8``."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        number, count = map(int, match.groups()) if match else (0, 0)
        if not 1 <= number <= count:
            raise UserError(Code.OPTION_INVALID, f"--shard {text}", "not a shard", "give a number and a count: 3/8")
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}-of-{self.count}"

    def contains(self, name: str) -> bool:
        """Return whether the case of this name belongs to the shard."""
        return int(hashlib.sha256(nfc(name).encode(errors="replace")).hexdigest(), 16) % self.count == self.number - 1


def settings_key(networks: Ensemble) -> str:
    """Return a checksum of the networks and of all settings that change label maps."""
    recipe = networks.recipe
    inference = recipe.inference.model_dump(mode="json", exclude={WITHOUT_EFFECT})
    batches = [list(recipe.batches.patch), recipe.batches.fit, networks.flip_axes]
    parts = [networks.identity(), inference, recipe.data.model_dump(mode="json"), batches]
    return _checksum(json.dumps(parts, sort_keys=True))


def case_key(case: Source, settings: str) -> str:
    """Return a checksum of the content of a scan and of the settings."""
    if case.sha256 is not None:
        return _checksum(f"{settings} {case.sha256}")
    files = [file for path in case.files for file in files_of(path)]
    return _checksum(" ".join([settings, *map(_content_of, files)]))


def _content_of(file: Path) -> str:
    try:
        return sha256_of(file)
    except OSError as error:
        finding = f"cannot be read ({error.strerror})"
        raise UserError(Code.READ_FAILED, file, finding, "check the file and its permissions") from None


def is_finished(earlier: PredictedCase | None, folder: Path, key: str) -> bool:
    """Return whether an earlier prediction of the case has this key and its files are unchanged."""
    if earlier is None or earlier.key != key:
        return False
    try:
        return checksums(folder, earlier.files) == earlier.checksums
    except OSError:
        return False


def checksums(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Return the checksums of some files of a folder."""
    return tuple(sha256_of(folder / name) for name in names)


def may_be_finished(earlier: PredictedCase, extras: ExtraMaps) -> bool:
    """Return whether an earlier prediction of a case has a key and wrote exactly the requested files."""
    return earlier.key is not None and earlier.files == names_of(earlier.case, extras).all


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
