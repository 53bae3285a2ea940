"""The fourth axis of a file: channels of a scan, or points in time."""

from dataclasses import dataclass
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.scan import Guess

MOST_VOLUMES = 16
"""A file of more volumes than this is taken for a time series, unless so many channels are named."""

MOST_CHANNELS = 8
"""More volumes than this are rather points in time than channels, whatever the header says."""

VOLUMES_ARE_CHANNELS = -1
"""In place of the number of named channels: the file was read before, and its volumes are known to be channels."""

NAMED = 'if they are channels, name them in dataset.json, as in "modality": {"0": "T1", "1": "T2"}'
SPLIT = "save the volume that is to be segmented, or the channels of a case as CASE_0000, CASE_0001"


@dataclass(frozen=True)
class FourthAxis:
    """How many volumes a file has, and what its header says of the way from one to the next.

    A ``step`` of 0 or 1 says nothing for certain, and no more do seconds: they are what writers of channels leave
    there too. ``says_time`` stands for words or numbers that only a time series has.
    """

    volumes: int
    step: float
    says_time: bool = False
    in_seconds: bool = False

    def refuse_time(self, path: Path, named: int | None) -> None:
        """Raise a UserError where the axis is one of time, unless as many channels are named as there are volumes."""
        if self._is_certain(named):
            return
        told = self.step > 0 and abs(self.step - 1) > 1e-6
        if self.volumes > MOST_VOLUMES or told or self.says_time:
            apart = f", {self.step:g} apart" if told else ""
            raise UserError(
                Code.SCAN_UNSUPPORTED,
                path,
                f"a time series of {self.volumes} volumes{apart}, not a scan",
                f"{SPLIT}; {NAMED}",
            )

    def guesses(self, path: Path, named: int | None) -> tuple[Guess, ...]:
        """What is left open where nobody names so many channels and the header may speak of time."""
        seconds = self.in_seconds and self.step > 0
        if self._is_certain(named) or not (seconds or self.volumes > MOST_CHANNELS):
            return ()
        apart = f", {self.step:g} s apart by its header" if seconds else ""
        what = "the volumes of one file are taken for channels"
        return (Guess(path, what, f"{self.volumes} channels{apart}", f"{NAMED}; of a time series keep one volume"),)

    def _is_certain(self, named: int | None) -> bool:
        return self.volumes == 1 or named in (self.volumes, VOLUMES_ARE_CHANNELS)
