"""Match label maps with cases by name: ``Liver_01.seg.nrrd`` and ``liver_01-label.nii.gz`` belong to ``liver_01``."""

import re
from collections.abc import Callable, Collection, Iterable
from difflib import SequenceMatcher
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.data.grouping import CHANNEL
from graftseg.data.scans import scan_stem

ENDING = re.compile(r"[_\-. ](seg|segmentation|labels?|mask|gt)$", re.IGNORECASE)  # marks label maps
MIN_SIMILARITY = 0.6  # names below this ratio of ``SequenceMatcher`` are not suggested


def without_label_ending(name: str) -> str:
    """Return the name of a label map without a final ``_seg``, ``_label`` or similar word."""
    return ENDING.sub("", nfc(name))


def match_labels(labels: Collection[str], cases: Collection[str]) -> dict[str, str]:
    """Return the case of each label map with an unambiguous match. Other label maps are missing in the result.

    Names are compared exactly, then ignoring case, then also without the ending of the label name. A match is
    unambiguous if neither the label map nor the case has another match.
    """
    matched: dict[str, str] = {}
    for key in (nfc, _folded, _bare):
        free_labels = _by_key([label for label in labels if label not in matched], key)
        free_cases = _by_key(set(cases) - {*matched.values()}, nfc if key is nfc else _folded)
        for shared in free_labels.keys() & free_cases.keys():
            if len(free_labels[shared]) == len(free_cases[shared]) == 1:
                matched[free_labels[shared][0]] = free_cases[shared][0]
    return matched


def cases_of_name(label: str, cases: Collection[str]) -> list[str]:
    """Return the cases whose names differ from a label map only in upper and lower case and in the label ending."""
    return sorted(case for case in cases if _folded(case) in (_folded(label), _bare(label)))


def most_similar_case(label: str, cases: Collection[str]) -> str | None:
    """Return the case with the same numbers and the most similar name, or None if no name is similar."""
    bare = _bare(label)
    alike = [case for case in cases if _numbers(case) == _numbers(bare)]
    ranked = sorted((-SequenceMatcher(None, bare, _folded(case)).ratio(), case) for case in alike)
    return ranked[0][1] if ranked and -ranked[0][0] >= MIN_SIMILARITY else None


def _by_key(names: Collection[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    names_by_key: dict[str, list[str]] = {}
    for name in names:
        names_by_key.setdefault(key(name), []).append(name)
    return names_by_key


def _folded(name: str) -> str:
    return nfc(name).casefold()


def _bare(name: str) -> str:
    return _folded(without_label_ending(name))


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"[0-9]+", name)]


def numbers_on_labels(images: Iterable[Path], labels: Iterable[Path]) -> dict[Path, Path]:
    """Return label maps with a channel number, and for each the image of the same name, which has no number."""
    image_of = {scan_stem(path): path for path in images if not CHANNEL.fullmatch(scan_stem(path))}
    matches = ((path, CHANNEL.fullmatch(scan_stem(path))) for path in labels)
    return {path: image_of[match["case"]] for path, match in matches if match and match["case"] in image_of}


def swapped_names(images: Path, labels: Path, swapped: Collection[Path], total: int) -> UserError:
    """Return the error for the ``swapped`` of ``total`` label maps. They have channel numbers, but their images not."""
    which = "the label maps have" if len(swapped) == total else f"{len(swapped)} of {total} label maps have"
    remedy = f"if the folders {images.name} and {labels.name} are swapped, exchange their names"
    if len(swapped) < total:
        remedy = f"if these files are in the wrong folder, exchange them with their images in {images.name}"
    finding = f"{which} a channel number, and the images of the same name have none"
    return UserError(Code.CASE_NAME, min(swapped), finding, remedy)
