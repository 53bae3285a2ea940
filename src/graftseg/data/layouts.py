"""A folder of scans -> its cases: labeled, unlabeled and test. One function per layout, one table of them."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json
from graftseg.core.names import names_extending, nfc
from graftseg.core.types import Case, Split
from graftseg.data.benchmarks import recognise_benchmark
from graftseg.data.dataset import Dataset as Dataset
from graftseg.data.dataset import ScanFiles
from graftseg.data.folders import refuse_broken_link, unsupported_images_in, visible_entries
from graftseg.data.grouping import CHANNEL, Files, by_channel, by_name, case_of, incomplete, labels_in, scans_in
from graftseg.data.scans import READABLE, files_of, is_header, is_label_map, is_scan, scan_stem
from graftseg.data.sources import Data, Sources

MOST_DIGITS = 18
NO_IMAGE = "no image belongs to this label"
LOOKED_FOR = "imagesTr/ and labelsTr/, with imagesUn/, imagesTs/, labelsTs/ and dataset.json if there are any"
# Labels of unlabeled images have no place in this table: nothing ever looks for them.
FOLDERS: tuple[tuple[str, str | None, Split], ...] = (
    ("imagesTr", "labelsTr", "labeled"),
    ("imagesUn", None, "unlabeled"),
    ("imagesTs", "labelsTs", "test"),
)
Places = tuple[tuple[Path, Path | None, Split], ...]


def read_layout(data: Data) -> Dataset:
    """Find the cases of a folder, whichever of the known layouts it has, or of folders named one by one."""
    if isinstance(data, Sources):
        return _with_labels(_plain(data), data.labeled_images, data.labels)
    folder = data
    if not folder.exists():
        raise UserError(Code.FOLDER_MISSING, folder, "there is no such folder", "check the spelling of the path")
    if not folder.is_dir():
        raise UserError(
            Code.NOT_A_FOLDER, folder, "this is a file, not a folder", f"name the folder that holds {LOOKED_FOR}"
        )
    for recognise in LAYOUTS.values():
        if (dataset := recognise(folder)) is not None:
            return _with_labels(dataset, folder / "imagesTr", folder / "labelsTr")
    found = ", ".join(path.name for path in visible_entries(folder)[:5]) or "nothing"
    raise UserError(
        Code.LAYOUT_UNKNOWN,
        folder,
        f"no known layout, it holds {found}",
        _nearby(folder) or f"arrange the scans as {LOOKED_FOR}",
    )


def _nearby(folder: Path) -> str:
    """What to name in place of a folder within a data set, or above one; empty where none is near."""
    place = folder.resolve()
    if place.name in {one for named in FOLDERS for one in named[:2]} and _has_images(place.parent):
        return f"name the folder above it, {place.parent}"
    inside = [path for path in visible_entries(folder) if path.is_dir() and _has_images(path)]
    return f"name the folder in it that holds imagesTr/, {inside[0]}" if len(inside) == 1 else ""


def _nnunet(folder: Path) -> Dataset | None:
    """``imagesTr/case_0000.nii.gz`` and ``case_0001.nii.gz`` are the channels of ``labelsTr/case.nii.gz``."""
    description = _description(folder)
    if not _has_images(folder):
        return None
    if not _numbers_channels(folder / "imagesTr", folder / "labelsTr", description):
        return None
    return _collect(folder, "nnunet", _places(folder), description, by_channel, _named_channels(description))


def _msd(folder: Path) -> Dataset | None:
    """``imagesTr/case.nii.gz`` holds all channels of ``labelsTr/case.nii.gz``."""
    if not _has_images(folder):
        return None
    return _collect(folder, "msd", _places(folder), _description(folder), by_name, 1)


def _plain(sources: Sources) -> Dataset:
    """Folders named one by one; ``dataset.json`` beside that of the labels may name classes and channels."""
    for folder in sources.folders:
        if not folder.is_dir():
            finding = "this is a file, not a folder" if folder.exists() else "there is no such folder"
            raise UserError(Code.FOLDER_MISSING, folder, finding, "name a folder of scans")
    # the lists of cases in it are those of its own folder
    found = _description(sources.labels.parent)
    description: dict[str, Any] = {key: found[key] for key in ("channel_names", "modality", "labels") if key in found}
    if _numbers_channels(sources.labeled_images, sources.labels, description):
        group, channels = by_channel, _named_channels(description)
    else:
        group, channels = by_name, 1
    dataset = _collect(sources.root, "plain", sources.places, {}, group, channels)
    reader = ScanFiles(_named_channels(description))
    return replace(dataset, classes=_classes(sources.labels.parent, description), reader=reader)


LAYOUTS: dict[str, Callable[[Path], Dataset | None]] = {
    "nnunet": _nnunet,
    "msd": _msd,
    "benchmark": recognise_benchmark,
}


def _has_images(folder: Path) -> bool:
    return (folder / "imagesTr").is_dir()


def _places(folder: Path) -> Places:
    return tuple((folder / images, folder / labels if labels else None, split) for images, labels, split in FOLDERS)


def _named_channels(description: dict[str, Any]) -> int | None:
    names = description.get("channel_names", description.get("modality"))
    return len(names) if names else None


def _numbers_channels(images: Path, labels: Path, description: dict[str, Any]) -> bool:
    """Whether names end in channel numbers; ``case_0007`` labeled by ``case_0007`` is a numbered case."""
    if len(description.get("channel_names") or ()) > 1:
        return True
    stems, labeled = ({nfc(scan_stem(path)) for path in found} for found in (scans_in(images), labels_in(labels)))
    numbered = {stem: match["case"] for stem in stems if (match := CHANNEL.fullmatch(stem))}
    if not numbered or numbered.keys() & labeled:
        return False
    # an image whose number was forgotten does not make cases of the others
    return len(numbered) == len(stems) or not labeled.isdisjoint({*numbered.values()} - stems)


def _collect(
    folder: Path,
    layout: str,
    places: Places,
    description: dict[str, Any],
    group: Callable[[list[Path], list[UserError]], Files],
    channels: int | None,
) -> Dataset:
    """Pair the images of every folder, grouped into cases, with their labels."""
    problems: list[UserError] = []
    grouped = {images: group(scans_in(images), problems) for images, _, _ in places}
    if channels is None:
        channels = max((max(files) + 1 for cases in grouped.values() for files in cases.values()), default=1)
    cases: list[Case] = []
    remedy = "add the missing files, remove those in excess or correct dataset.json"
    for images, labels, split in places:
        problems += [error for _, error in incomplete(grouped[images], channels, remedy)]
        cases += _pair(images, grouped[images], labels, split, problems, is_numbered=group is by_channel)
    cases.sort(key=lambda case: (("labeled", "unlabeled", "test").index(case.split), case.name))
    problems += _repeated(cases)
    problems += _listed_but_absent(folder, description, {nfc(case.name) for case in cases})
    reader = ScanFiles(_named_channels(description))
    classes, ignored = _classes(folder, description), _ignored(places)
    return Dataset(folder, layout, tuple(cases), classes, tuple(problems), ignored, reader)


def _pair(
    images: Path, files: Files, labels: Path | None, split: Split, problems: list[UserError], *, is_numbered: bool
) -> Iterator[Case]:
    """Cases with their labels; a training image without a label is an unlabeled one."""
    found = by_name(labels_in(labels), problems) if labels else {}
    for name, channels in files.items():
        label = found.pop(name, {}).get(0)
        meant: Split = "unlabeled" if split == "labeled" and label is None else split
        yield case_of(channels, label, meant, is_numbered=is_numbered)
    # what an image is told to lack is not told of its label again
    unnumbered = {nfc(scan_stem(path)) for path in scans_in(images)} if found else set()
    orphans = [found[name][0] for name in found if name not in unnumbered or CHANNEL.fullmatch(name)]
    problems += [_orphaned(orphan, files) for orphan in orphans]


def _orphaned(label: Path, images: Collection[str]) -> UserError:
    """A label map without an image, and what to do; images that add an ending to its name may be its channels."""
    name = scan_stem(label)
    finding, remedy = NO_IMAGE, "add the image, remove the label or give it the name of its case"
    if len(near := names_extending(name, images)) > 1:
        finding += (
            f", and {len(near)} images begin with its name ({', '.join(near[:3])}{', ...' if len(near) > 3 else ''})"
        )
        remedy = (
            f"if these are its channels, call them {name}_0000, {name}_0001 and so on, in the same order for every case"
        )
    elif near:
        remedy = f"if it belongs to {near[0]}, give it that name"
    return UserError(Code.DATASET_INVALID, label, finding, remedy)


def _repeated(cases: list[Case]) -> Iterator[UserError]:
    for name, times in Counter(nfc(case.name) for case in cases).items():
        if times > 1:
            places = " and ".join(f"{case.images[0].parent.name}" for case in cases if nfc(case.name) == name)
            yield UserError(
                Code.CASE_DUPLICATE,
                name,
                f"{times} cases have this name, in {places}",
                "give every case a name of its own",
            )


def _with_labels(dataset: Dataset, images: Path, labels: Path) -> Dataset:
    if not dataset.cases:
        if refused := [problem for problem in dataset.problems if Path(problem.where).parent == images]:
            raise refused[0]
        remedy = (
            f"name a folder of {READABLE} scans" if dataset.layout == "plain" else f"arrange the scans as {LOOKED_FOR}"
        )
        finding = f"{images.name}/ holds no scan"
        if unread := unsupported_images_in(images):
            finding, remedy = f"{finding}: {unread[0]}", unread[1]
        raise UserError(Code.NOT_A_SCAN, dataset.root, finding, remedy)
    if not dataset.of("labeled"):
        finding = f"none of the {len(dataset.cases)} cases is labeled"
        remedy = f"put label maps into {labels.name}/ under the names of their images"
        if orphans := [problem for problem in dataset.problems if problem.finding.startswith(NO_IMAGE)]:
            finding += f", and {len(orphans)} labels fit no image, such as {Path(orphans[0].where).name}"
            if " images begin with its name" in orphans[0].finding:
                finding, remedy = finding + orphans[0].finding.removeprefix(NO_IMAGE), orphans[0].remedy
        raise UserError(Code.DATASET_INVALID, dataset.root, finding, remedy)
    return dataset


def _description(folder: Path) -> dict[str, Any]:
    """The content of ``dataset.json``, or nothing where there is none."""
    path = folder / "dataset.json"
    refuse_broken_link(path)
    if not path.is_file():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(Code.DATASET_INVALID, path, "not an object of keys and values", "restore the file or remove it")
    ending = content.get("file_ending")
    if ending is not None and not is_scan(Path(f"case{ending}")):
        raise UserError(
            Code.DATASET_INVALID,
            path,
            f"file_ending is {ending!r}, which cannot be read",
            "convert the scans to .nii.gz",
        )
    for key in ("channel_names", "modality", "labels"):
        if key in content and not isinstance(content[key], dict):
            raise UserError(
                Code.DATASET_INVALID, path, f"{key} is not an object of keys and values", "correct the entry"
            )
    return content


def _classes(folder: Path, description: dict[str, Any]) -> dict[int, str]:
    """Label value -> name, from either way of writing: ``{"liver": 1}`` and ``{"1": "liver"}``."""
    path = folder / "dataset.json"
    classes: dict[int, str] = {}
    for key, entry in description.get("labels", {}).items():
        value, name = _class(path, key, entry)
        if value in classes:
            raise UserError(
                Code.DATASET_INVALID,
                path,
                f"the label value {value} has two names, {classes[value]} and {name}",
                "keep one",
            )
        classes[value] = name
    if classes:
        classes.setdefault(0, "background")
    return dict(sorted(classes.items()))


def _class(path: Path, key: str, entry: object) -> tuple[int, str]:
    if isinstance(entry, list):
        raise UserError(
            Code.DATASET_INVALID,
            path,
            f"the label {key!r} is a region of several values, which is not supported",
            "list one value for each class",
        )
    if key == "ignore":
        raise UserError(Code.DATASET_INVALID, path, "a label to ignore is not supported", "leave such scans unlabeled")
    if isinstance(entry, str) and not _is_value(entry) and _is_value(key):
        return int(key), entry
    if isinstance(entry, int | str) and not isinstance(entry, bool) and _is_value(str(entry)):
        return int(entry), key
    raise UserError(
        Code.DATASET_INVALID,
        path,
        f"the label {key!r:.40}: {entry!r:.40} names no class",
        'write labels as {"background": 0, "liver": 1}',
    )


def _is_value(text: str) -> bool:
    return text.isdecimal() and len(text) <= MOST_DIGITS


def _listed_but_absent(folder: Path, description: dict[str, Any], names: set[str]) -> Iterator[UserError]:
    """Files that ``dataset.json`` lists and the folder lacks; a path out of the folder is refused."""
    for entry in _listed(description):
        inside = Path(os.path.normpath(folder / entry))
        if not inside.is_relative_to(os.path.normpath(folder)):
            raise UserError(
                Code.DATASET_INVALID,
                folder / "dataset.json",
                f"the entry {entry!r} lies outside the folder",
                "move the file inside",
            )
        stem = nfc(scan_stem(inside))
        numbered = CHANNEL.fullmatch(stem)
        if stem not in names and not (numbered and numbered["case"] in names):
            yield UserError(
                Code.FILE_MISSING,
                folder / "dataset.json",
                f"{entry!r} is listed but not there",
                "add the file or drop the entry",
            )


def _listed(description: dict[str, Any]) -> Iterator[str]:
    """Every path in the lists of cases, whatever their nesting."""
    pending: list[Any] = [description.get(key) for key in ("training", "test", "dataset")]
    while pending:
        entry = pending.pop(0)
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            pending += entry.values()
        elif isinstance(entry, list):
            pending += entry


def _ignored(places: Places) -> tuple[str, ...]:
    """What lies among images and labels and is neither."""
    ignored = []
    for images, labels, _ in places:
        ignored += _strays(images, is_scan)
        if labels is not None:
            ignored += _strays(labels, is_label_map)
    return tuple(ignored)


def _strays(folder: Path, belongs: Callable[[Path], bool]) -> list[str]:
    found = visible_entries(folder)
    parts = {part for path in found if is_header(path) for part in files_of(path)}
    return [f"{folder.name}/{path.name}" for path in found if path not in parts and not belongs(path)]
