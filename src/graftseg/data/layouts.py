"""The labeled, unlabeled and test cases of a folder of scans, in any of the known layouts."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.names import names_extending, nfc
from graftseg.core.types import Case, Split
from graftseg.data import grouping
from graftseg.data.benchmarks import recognize_benchmark
from graftseg.data.dataset import Dataset, ScanFiles
from graftseg.data.dataset_json import DatasetJson, case_and_label_names
from graftseg.data.folders import require_folder, visible_entries
from graftseg.data.formats.dicom_labels import common_classes
from graftseg.data.formats.pictures import SUFFIXES as PICTURES
from graftseg.data.formats.pictures import are_gray
from graftseg.data.scans import (
    READABLE,
    files_of,
    is_dicom_scan,
    is_header,
    is_label_map,
    is_scan,
    may_be_dicom,
    scan_stem,
)
from graftseg.data.sources import Data, Sources
from graftseg.data.unsupported_files import CONVERSION_ADVICE, unsupported_ending, unsupported_images_in

EXPECTED = "imagesTr/ and labelsTr/ (imagesUn/, imagesTs/, labelsTs/ and dataset.json are optional)"
# imagesUn has no folder of labels: an image in it with a label map in labelsTr is labeled
FOLDERS: tuple[tuple[str, str | None, Split], ...] = (
    ("imagesTr", "labelsTr", "labeled"),
    ("imagesUn", None, "unlabeled"),
    ("imagesTs", "labelsTs", "test"),
)
FOLDER_NAMES = tuple(name for images, labels, _ in FOLDERS for name in (images, labels) if name is not None)
FolderPairs = tuple[tuple[Path, Path | None, Split], ...]  # folder of images, folder of labels, split


def read_layout(data: Data) -> Dataset:
    """Find the cases of one folder in any known layout, or of separate folders."""
    if isinstance(data, Sources):
        for folder in data.folders:
            require_folder(folder, "pass a folder of scans")
        description = DatasetJson.read(data.labels.parent)  # may name classes and channels
        is_numbered = _has_channel_numbers(data.folder_pairs, description)
        dataset = _collect(data.root, "plain", data.folder_pairs, description, is_numbered=is_numbered)
        return _require_labeled(dataset, data.labeled_images, data.labels)
    require_folder(data, f"pass a folder with {EXPECTED}")
    if (known := _nnunet_or_msd(data) or recognize_benchmark(data)) is not None:
        return _require_labeled(known, data / "imagesTr", data / "labelsTr")
    content = ", ".join(path.name for path in visible_entries(data)[:5]) or "nothing"
    is_incomplete = any((data / name).is_dir() for name in FOLDER_NAMES)
    finding = "imagesTr is missing" if is_incomplete else "unknown layout"
    remedy = _nearby_folder(data) or _other_arrangement(data) or f"arrange the scans as {EXPECTED}"
    raise UserError(Code.LAYOUT_UNKNOWN, data, f"{finding}, the folder contains {content}", remedy)


def misnamed_folders(root: Path) -> dict[Path, str]:
    """Return the folders whose names differ from a known name only in case, ``_`` or ``-``, with the known name."""
    known = {name.lower(): name for name in FOLDER_NAMES}
    misnamed = {}
    for path in visible_entries(root):
        name = known.get(path.name.lower().replace("_", "").replace("-", ""))
        # a file system that ignores case shows one folder under both names
        if name and path.is_dir() and not ((root / name).exists() and path.samefile(root / name)):
            misnamed[path] = name
    return misnamed


def _misnamed_errors(root: Path) -> Iterator[UserError]:
    """Yield an error for every folder of scans that would be ignored because of its name."""
    for path, name in misnamed_folders(root).items():
        if grouping.scans_in(path) or grouping.labels_in(path):
            content = "label maps" if name.startswith("labels") else "scans"
            finding = f"the {content} in this folder are not used, because of its name"
            remedy = f"move the {content} into {name}" if (root / name).is_dir() else f"rename the folder to {name}"
            yield UserError(Code.LAYOUT_UNKNOWN, path, finding, remedy)


def _nearby_folder(folder: Path) -> str:
    """Suggest a misnamed folder, the parent folder or the only subfolder with ``imagesTr``, or return ""."""
    for path, name in misnamed_folders(folder).items():
        if name == "imagesTr":
            return f"rename the folder {path.name} to {name}"
    resolved = folder.resolve()
    if resolved.name in FOLDER_NAMES and (resolved.parent / "imagesTr").is_dir():
        return f"pass the folder above it, {resolved.parent}"
    inside = [path for path in visible_entries(folder) if path.is_dir() and (path / "imagesTr").is_dir()]
    return f"pass the subfolder that contains imagesTr/, {inside[0]}" if len(inside) == 1 else ""


def _other_arrangement(root: Path) -> str:
    """Return a remedy if images and label maps are in two folders, or each case is in its own folder, otherwise ""."""
    folders = [path for path in visible_entries(root) if path.is_dir() and not is_scan(path)]
    filled = [path for path in folders if grouping.scans_in(path)]
    labels = [path for path in filled if re.search("label|mask|seg|annotation|ground|gt", path.name, re.IGNORECASE)]
    images = [path for path in filled if path not in labels]
    if len(labels) == len(images) == 1:
        return f"pass --labeled-images {images[0]} --labels {labels[0]}, or arrange the scans as {EXPECTED}"
    if len(images) == len(folders) > 1:
        case = nfc(images[0].name)
        named = f"imagesTr/{case}.nii.gz and its label map as labelsTr/{case}.nii.gz"
        return f"if each subfolder is a case, copy the scan of {case} as {named}, and so on"
    return ""


def _nnunet_or_msd(folder: Path) -> Dataset | None:
    """Read the layout of nnU-Net or of the Medical Segmentation Decathlon, or return None if ``imagesTr`` is missing.

    In nnU-Net ``imagesTr/case_0000.nii.gz`` and ``case_0001.nii.gz`` are the channels of ``labelsTr/case.nii.gz``. In
    the Decathlon (msd) ``imagesTr/case.nii.gz`` contains all channels.
    """
    description = DatasetJson.read(folder)
    if not (folder / "imagesTr").is_dir():
        return None
    pairs = tuple((folder / images, folder / labels if labels else None, split) for images, labels, split in FOLDERS)
    is_numbered = _has_channel_numbers(pairs, description)
    dataset = _collect(folder, "nnunet" if is_numbered else "msd", pairs, description, is_numbered=is_numbered)
    missing = description.find_missing(case_and_label_names(dataset.cases))
    return replace(dataset, problems=(*dataset.problems, *missing, *_misnamed_errors(folder)))


def _has_channel_numbers(pairs: FolderPairs, description: DatasetJson) -> bool:
    """Return whether image names end in channel numbers. Numbers in label names are not channel numbers."""
    if description.has_channel_files and not _are_color_pictures(pairs, description):
        return True
    _, labels, _ = pairs[0]
    folders = [images for images, _, split in pairs if split != "test"]
    stems_of_folders = ({scan_stem(path) for path in grouping.scans_in(images)} for images in folders)
    stems = next((stems for stems in stems_of_folders if stems), set())
    labeled = _label_names(labels)
    numbered = {stem: match["case"] for stem in stems if (match := grouping.CHANNEL.fullmatch(stem))}
    if not numbered or numbered.keys() & labeled:
        return False
    cases, unnumbered = {*numbered.values()}, len(stems) - len(numbered)
    # the majority decides: a few names with another form are mistakes
    return not unnumbered or (len(cases) >= unnumbered and not labeled.isdisjoint(cases - stems))


def _are_color_pictures(pairs: FolderPairs, description: DatasetJson) -> bool:
    """Return whether each picture contains the three named channels, as in nnU-Net's data sets of RGB pictures."""
    scans = [path for images, _, _ in pairs for path in grouping.scans_in(images)]
    if description.named_channels != 3 or not all(path.name.lower().endswith(PICTURES) for path in scans):
        return False
    numbers = (match["channel"] for path in scans if (match := grouping.CHANNEL.fullmatch(scan_stem(path))))
    return all(int(number) == 0 for number in numbers)


def _label_names(labels: Path | None) -> set[str]:
    """Return the names of the label maps in a folder, with and without label endings such as ``_seg``."""
    stems = {scan_stem(path) for path in grouping.labels_in(labels)} if labels else set()
    return stems | {grouping.without_label_ending(stem) for stem in stems}


def _collect(folder: Path, layout: str, pairs: FolderPairs, description: DatasetJson, *, is_numbered: bool) -> Dataset:
    """Group the images of every folder into cases and find their labels."""
    problems: list[UserError] = []
    label_names = set().union(*(_label_names(labels) for _, labels, _ in pairs))
    scans = {images: grouping.scans_in(images) for images, _, _ in pairs}
    for images, paths in scans.items():
        grouping.refuse_loose_slices(images, paths, label_names)
    is_one_file = not is_numbered or _are_color_pictures(pairs, description)
    channels = 1 if is_one_file else description.named_channels
    if channels is None:
        channels = grouping.channel_count_of(path for paths in scans.values() for path in paths)
    grouped = {
        images: grouping.group_scans(paths, problems, is_numbered=is_numbered, channels=channels)
        for images, paths in scans.items()
    }
    cases: list[Case] = []
    remedy = "add missing files, remove extra files or correct dataset.json"
    label_of_unlabeled: dict[str, Path] = {}
    for images, labels, split in pairs:
        files = grouped[images]
        problems += [error for _, error in grouping.find_incomplete(files, channels, remedy)]
        label_of = label_of_unlabeled
        if labels is not None:
            others = _images_to_annotate(split, pairs, grouped)
            label_of, label_of_unlabeled = _match_labels(images, labels, files, others, problems)
        for name, by_channel in files.items():
            label = label_of.get(name)
            # a training image is labeled if it has a label map
            role: Split = split if split == "test" else "unlabeled" if label is None else "labeled"
            cases.append(grouping.make_case(name, by_channel, label, role))
    cases.sort(key=lambda case: (("labeled", "unlabeled", "test").index(case.split), case.name))
    for name, times in Counter(case.name for case in cases).items():
        if times > 1:
            shared = " and ".join(case.images[0].parent.name for case in cases if case.name == name)
            finding = f"{times} cases have this name, in {shared}"
            problems.append(UserError(Code.CASE_DUPLICATE, name, finding, "give every case a unique name"))
    classes = description.classes()
    labels_of_cases = [case.label for case in cases if case.split == "labeled" and case.label is not None]
    if not classes and all(map(is_dicom_scan, labels_of_cases)):  # other label maps contain no class names
        classes, invalid = common_classes(labels_of_cases)
        problems += invalid
    reader = ScanFiles(description.named_channels, classes, are_gray(cases, description.named_channels))
    return Dataset(folder, layout, tuple(cases), classes, tuple(problems), _ignored_files(pairs, grouped), reader)


def _images_to_annotate(split: Split, pairs: FolderPairs, grouped: Mapping[Path, grouping.Files]) -> grouping.Files:
    """Return the images in ``imagesUn``, which are labeled if ``labelsTr`` contains their label map."""
    folders = [images for images, labels, _ in pairs if labels is None] if split == "labeled" else []
    return {name: files for images in folders for name, files in grouped[images].items()}


def _match_labels(
    images: Path, labels: Path, files: grouping.Files, others: grouping.Files, problems: list[UserError]
) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the label maps of ``files`` and ``others`` by case. Add an error for each label map without an image."""
    unmatched = grouping.group_scans(_possible_labels(labels, {*files, *others}), problems, is_numbered=False)
    label_of, label_of_others = (
        {case: unmatched.pop(label)[0] for label, case in grouping.match_labels(unmatched, names).items()}
        for names in (files, others)
    )
    image_files = grouping.scans_in(images) if unmatched else []
    _report_swapped(images, labels, image_files, unmatched, problems)
    # an image without a channel number is already reported, so its label is not reported as unmatched
    image_stems = {scan_stem(path) for path in image_files}
    for name, label_files in unmatched.items():
        if name not in image_stems or grouping.CHANNEL.fullmatch(name):
            problems.append(_unmatched(label_files[0], name, images, {**others, **files}, label_of_others | label_of))
    return label_of, label_of_others


def _report_swapped(
    images: Path, labels: Path, image_files: Sequence[Path], unmatched: grouping.Files, problems: list[UserError]
) -> None:
    """Replace the errors of images without a channel number by one error if their label maps have channel numbers."""
    unnumbered = {Path(problem.where) for problem in problems if problem.code is Code.CASE_NAME}
    stems = {scan_stem(path): path for path in unnumbered.intersection(image_files)}
    image_of = {stem: path for stem, path in stems.items() if not grouping.CHANNEL.fullmatch(stem)}
    case_of = {name: match["case"] for name in unmatched if (match := grouping.CHANNEL.fullmatch(name))}
    swapped = {unmatched.pop(name)[0]: image_of[case] for name, case in case_of.items() if case in image_of}
    if not swapped:
        return
    total = len(grouping.labels_in(labels))
    which = "the label maps have"
    remedy = f"if the folders {images.name} and {labels.name} are swapped, exchange their names"
    if len(swapped) < total:
        which = f"{len(swapped)} of {total} label maps have"
        remedy = f"if these files are in the wrong folder, exchange them with their images in {images.name}"
    finding = f"{which} a channel number, and the images of the same name have none"
    problems[:] = [problem for problem in problems if Path(problem.where) not in swapped.values()]
    problems.append(UserError(Code.CASE_NAME, min(swapped), finding, remedy))


def _possible_labels(folder: Path, cases: Collection[str]) -> list[Path]:
    """Return the label maps in a folder. Include other DICOM files named like a case, so that reading reports them."""
    return [
        path
        for path in visible_entries(folder)
        if is_label_map(path) or (grouping.cases_of_name(scan_stem(path), cases) and may_be_dicom(path))
    ]


def _unmatched(label: Path, name: str, images: Path, files: grouping.Files, label_of: dict[str, Path]) -> UserError:
    """Return the error for a label map without an image, or the error for its image if the image has a wrong name."""
    numbered = grouping.CHANNEL.fullmatch(name)
    if numbered and label.name in {path.name for path in files.get(numbered["case"], {}).values()}:
        finding = f"the label map has the name of an image in {images.name}"
        remedy = f"remove it, and put the label map {numbered['case']} into {label.parent.name}"
        return UserError(Code.LABEL_UNMATCHED, label, finding, remedy)
    if taken := grouping.cases_of_name(name, label_of):
        return grouping.duplicate_case_error(label, label_of[taken[0]])
    unlabeled = files.keys() - label_of.keys()
    for case in sorted(unlabeled):
        numbered, path = grouping.CHANNEL.fullmatch(case), min(files[case].items())[1]
        if numbered and numbered["case"] == grouping.without_label_ending(name) and scan_stem(path) == case:
            finding = "the name has a channel number, but most other images have none"
            return UserError(Code.CASE_NAME, path, finding, f"name the image {numbered['case']}, or number all images")
    if unread := [file for file in visible_entries(images) if file.stem == name and unsupported_ending(file.name)]:
        remedy = CONVERSION_ADVICE[unsupported_ending(unread[0].name) or ""]
        return UserError(Code.LABEL_UNMATCHED, label, f"its image {unread[0].name} cannot be read", remedy)
    similar, remedy = _similar_images(name, unlabeled)
    return UserError(Code.LABEL_UNMATCHED, label, f"no image has the name of this label{similar}", remedy)


def _similar_images(label: str, images: Collection[str]) -> tuple[str, str]:
    """Return a description of images that may be channels of an unmatched label, and a remedy."""
    similar = names_extending(label, images)
    if len(similar) > 1:
        names = ", ".join(similar[:3]) + (", ..." if len(similar) > 3 else "")
        remedy = f"if these are channels, name them {label}_0000, {label}_0001, ... in the same order for all cases"
        return f", but {len(similar)} images begin with its name ({names})", remedy
    if similar:
        return "", f"if the label belongs to {similar[0]}, give it that name"
    if meant := grouping.most_similar_case(label, images):
        return f" (did you mean {meant}?)", "give the label the name of its image"
    return "", "add the image, remove the label or rename the label to match its image"


def _require_labeled(dataset: Dataset, images: Path, labels: Path) -> Dataset:
    """Raise a UserError if a data set has no cases or no labeled case."""
    if not dataset.cases:
        if refused := [problem for problem in dataset.problems if Path(problem.where).parent == images]:
            raise refused[0]
        finding, remedy = f"{images.name}/ contains no scan", f"arrange the scans as {EXPECTED}"
        if dataset.layout == "plain":
            remedy = f"pass a folder of {READABLE} scans"
        _refuse_unsupported(images)
        raise UserError(Code.NOT_A_SCAN, dataset.root, finding, remedy)
    if not dataset.of("labeled"):
        for problem in dataset.problems:
            if problem.code is Code.LAYOUT_UNKNOWN:
                raise problem
        for folder, found in ((images, grouping.scans_in(images)), (labels, grouping.labels_in(labels))):
            if not found:
                _refuse_unsupported(folder)
        raise _unlabeled_error(dataset, images, labels)
    return dataset


def _refuse_unsupported(folder: Path) -> None:
    """Raise a UserError if a folder has images in an unsupported format, or scans in a subfolder."""
    if unread := unsupported_images_in(folder):
        raise UserError(Code.NOT_A_SCAN, folder, f"contains {unread[0]}", unread[1])
    if nested := [path for path in visible_entries(folder) if grouping.nested_scans(path)]:
        finding = f"the scans are in the subfolder {nested[0].name}"
        raise UserError(Code.NOT_A_SCAN, folder, finding, f"move the scans up into {folder.name}")


def _unlabeled_error(dataset: Dataset, images: Path, labels: Path) -> UserError:
    finding = f"none of the {len(dataset.cases)} cases is labeled"
    remedy = f"put label maps with the names of their images into {labels.name}/"
    unmatched = [Path(problem.where) for problem in dataset.problems if problem.code is Code.LABEL_UNMATCHED]
    if unmatched:
        finding += f", and {len(unmatched)} labels match no image, such as {unmatched[0].name}"
        names = {case.name: scan_stem(case.images[0]) for case in dataset.cases if case.images[0].parent == images}
        numbered = [grouping.CHANNEL.fullmatch(scan_stem(label)) for label in unmatched]
        similar, advice = _similar_images(scan_stem(unmatched[0]), names)
        if all(match and match["case"] in names.values() for match in numbered):
            finding += f", but the names in {images.name} are the same without a channel number"
            remedy = f"exchange {images.name} and {labels.name} if they are swapped; otherwise rename the label maps"
        elif similar:
            finding, remedy = finding + similar, advice
    return UserError(Code.TOO_FEW_CASES, dataset.root, finding, remedy)


def _ignored_files(pairs: FolderPairs, grouped: Mapping[Path, grouping.Files]) -> tuple[str, ...]:
    """Return the files in the folders that are neither images nor labels."""
    ignored = []
    for images, labels, split in pairs:
        folders = [(images, grouping.scans_in(images))]
        if labels is not None:
            names = {*grouped[images], *_images_to_annotate(split, pairs, grouped)}
            folders.append((labels, _possible_labels(labels, names)))
        for folder, scans in folders:
            used_files = {*scans, *(part for path in scans if is_header(path) for part in files_of(path))}
            ignored += [path for path in visible_entries(folder) if path not in used_files]
    return tuple(f"{path.parent.name}/{path.name}" for path in ignored)
