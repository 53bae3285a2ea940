"""The fourth axis of a file: channels of a scan, or points in time."""

from dataclasses import dataclass
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.scan import Guess

MAX_VOLUMES = 16
"""A file with more volumes is a time series, unless ``dataset.json`` names as many channels."""

USUAL_CHANNELS = 8
"""More volumes are probably points in time, whatever the header says."""

VOLUMES_ARE_CHANNELS = -1
"""Passed instead of a number of named channels if the volumes of a file are known to be channels."""

NAME_CHANNELS = 'if they are channels, name them in dataset.json, as in "modality": {"0": "T1", "1": "T2"}'
SPLIT = "save the volume to segment, or the channels of a case as CASE_0000, CASE_0001"


@dataclass(frozen=True)
class FourthAxis:
    """The number of volumes in a file and the distance between them in the header.

    A ``step`` of 0 or 1 is ambiguous, and so is the unit second: many programs write both for channels.
    ``says_time`` means that the header contains a word or number that only time series have.
    """

    volumes: int
    step: float
    says_time: bool = False
    in_seconds: bool = False

    def refuse_time(self, path: Path, named: int | None) -> None:
        """Raise a UserError for a time series, unless ``named`` channels match the number of volumes."""
        if self._is_certain(named):
            return
        has_step = self.step > 0 and abs(self.step - 1) > 1e-6
        if self.volumes > MAX_VOLUMES or has_step or self.says_time:
            step = f" with a step of {self.step:g}" if has_step else ""
            finding = f"a time series of {self.volumes} volumes{step}"
            raise UserError(Code.SCAN_UNSUPPORTED, path, finding, f"{SPLIT}; {NAME_CHANNELS}")

    def guesses(self, path: Path, named: int | None) -> tuple[Guess, ...]:
        """Return a guess if the volumes may be points in time."""
        has_seconds = self.in_seconds and self.step > 0
        if self._is_certain(named) or not (has_seconds or self.volumes > USUAL_CHANNELS):
            return ()
        taken = f"{self.volumes} channels" + (f", {self.step:g} s apart by the header" if has_seconds else "")
        what = "the volumes of one file are assumed to be channels"
        return (Guess(path, what, taken, f"{NAME_CHANNELS}; if it is a time series, keep one volume"),)

    def _is_certain(self, named: int | None) -> bool:
        return self.volumes == 1 or named in (self.volumes, VOLUMES_ARE_CHANNELS)
