"""Settings of a prediction: checkpoint, cases, files to write, resuming, and shards of an archive."""

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.inference.ensemble import Checkpoint
from graftseg.inference.label_maps import LABELS_ONLY, ExtraMaps

OTHER_FOLDER = "name another folder as --out"


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


@dataclass(frozen=True)
class PredictionSettings:
    """Options of a prediction."""

    overrides: Iterable[str] = ()  # changes of settings under ``inference``
    checkpoint: Checkpoint = "shipped"
    only: Collection[str] = ()  # names of the cases to predict, from any split of a store
    fold: int | None = None  # number of a fold whose network is used, by default the networks of all folds
    extras: ExtraMaps = LABELS_ONLY  # files to write in addition to the label maps
    remedy: str = OTHER_FOLDER  # remedy in errors about unrelated files in the output folder
    is_resumed: bool = False  # whether to skip unchanged scans that a prediction with the same settings finished
    shard: Shard | None = None  # part of the cases to predict


DEFAULT_SETTINGS = PredictionSettings()
