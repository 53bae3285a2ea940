"""SNOMED CT codes of the classes, from a JSON file, for DICOM segmentations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json
from graftseg.core.names import nfc
from graftseg.core.run_folder import RunFolder

FILE = "codes.json"  # name of the file with the codes in a run folder
# The tables of the Verhoeff check digit: products in the dihedral group of order 10, and permutations by position.
_PRODUCT = (
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
    "5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
)  # fmt: skip
_PERMUTATION = (
    "0123456789", "1576283094", "5803796142", "8916043527", "9453126870", "4286573901", "2793806415", "7046913258",
)  # fmt: skip


def _verify_check_digit(value: str) -> str:
    """Return a SNOMED CT identifier. Raise a ValueError if its last digit is not its Verhoeff check digit."""
    state = 0
    for place, digit in enumerate(reversed(value)):
        state = int(_PRODUCT[state][int(_PERMUTATION[place % 8][int(digit)])])
    if state:
        raise ValueError("not a SNOMED CT identifier, its check digit is wrong")
    return value


class SnomedCode(BaseModel):
    """A SNOMED CT concept: identifier and meaning."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    value: Annotated[str, Field(pattern="^[1-9][0-9]{5,17}$"), AfterValidator(_verify_check_digit)]
    meaning: str = Field(min_length=1, max_length=64, pattern=r"^[^\\\x00-\x1f\x7f]*[^\\\s\x00-\x1f\x7f]$")


CATEGORY = SnomedCode(value="91723000", meaning="Anatomical Structure")
TISSUE = SnomedCode(value="85756007", meaning="Tissue")


class SegmentCodes(BaseModel):
    """Codes of a class: category and type of the segmented property, and its anatomic region, if any."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    category: SnomedCode = CATEGORY
    type: SnomedCode
    region: SnomedCode | None = None


GENERIC = SegmentCodes(type=TISSUE)  # the codes of a class that the file does not list
_CONTENT = TypeAdapter(dict[str, SegmentCodes])


def read_codes(file: Path | None, run: RunFolder, classes: Sequence[str]) -> dict[str, SegmentCodes]:
    """Return the codes of classes in ``file``, by default in ``codes.json`` of the run. Raise an error if invalid."""
    path = file or run.path / FILE
    if file is None and not path.is_file():
        return {}
    try:
        content = _CONTENT.validate_python(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        remedy = 'write {"CLASS": {"type": {"value": "10200004", "meaning": "Liver"}}}'
        raise UserError(Code.SETTING_INVALID, path, f"{place}: {first['msg']}", remedy) from None
    codes = {nfc(name): code for name, code in content.items()}
    if unknown := sorted(codes.keys() - {nfc(name) for name in classes[1:]}):
        remedy = f"choose one of {', '.join(classes[1:])}"
        raise UserError(Code.UNKNOWN_NAME, path, f"unknown class {unknown[0]!r}", remedy)
    return codes
