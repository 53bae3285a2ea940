"""Resuming of a prediction: finished cases, recognized by checksums of networks, settings, scans and label maps."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.predictions import PredictedCase
from graftseg.core.reading import sha256_of
from graftseg.data.scans import files_of
from graftseg.inference.ensemble import Ensemble
from graftseg.inference.inputs import Source

WITHOUT_EFFECT = "windows_per_forward"  # inference setting that changes no label map


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


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
