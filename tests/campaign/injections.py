"""Hostile names of cases, classes, channels, recipes and DICOM tags, followed into every output."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from command import Printed, command
from dicom_data import dicom_slice, write_dicom
from part import Part
from payloads import Payload, harmless, payloads
from pydicom.dataset import Dataset
from sinks import is_inside, problem, structure_problem
from small_data import write_data, write_recipe

from graftseg.core.names import nfc

PROMISE = "a hostile name is shown as text, or refused with one sentence"
PAGES = (".html", ".svg")
SINKS = (*PAGES, ".csv", ".json", ".jsonl", ".yaml", ".md")
CASES_AT_ONCE, CLASSES_AT_ONCE, CHANNELS_AT_ONCE = 18, 14, 6
DICOM_TAGS = ("SeriesDescription", "PatientName", "StudyDescription", "ProtocolName")


Make = Callable[[Path, Sequence[Payload], bool], "Trial"]
"""A function that writes data with these names to a folder and runs commands on it, or only those that write pages."""


@dataclass
class Trial:
    """Outputs of commands on one data set, by name. ``crashes`` has a line for every command with a traceback."""

    folder: Path
    outputs: dict[str, str] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)

    def run(self, *words: object, terminal: bool = False) -> Printed:
        """Run a command and keep what it prints."""
        printed = command(*words, terminal=terminal)
        where = "terminal" if terminal else "pipe"
        for stream, text in (("stdout", printed.out), ("stderr", printed.error)):
            self.outputs[f"{words[0]} {stream} ({where})"] = text
        if words[-1] == "--json":
            self.outputs[f"{words[0]} stdout.json"] = self.outputs.pop(f"{words[0]} stdout (pipe)") or "{}"
        if not printed.is_clean:
            self.crashes.append(f"{words[0]}: {printed.error.strip().splitlines()[-1]}")
        return printed

    def collect(self) -> None:
        """Add the files that the commands wrote."""
        for path in sorted((self.folder / "out").rglob("*")):
            if path.suffix in SINKS and path.is_file() and "cases" not in path.parts:
                name = path.relative_to(self.folder / "out").as_posix()
                self.outputs[name] = path.read_bytes().decode(errors="surrogateescape")


def injections(work: Path, seed: int, count: int) -> Part:
    """Follow hostile names into outputs until ``count`` pairs of a name and an output were checked."""
    part, random, places = Part("injections", PROMISE), Random(seed), list(PLACES)
    round_number = 0
    while part.tried < count:
        place = places[round_number % len(places)]
        folder = work / f"round-{round_number}"
        PLACES[place](part, place, folder, random, count)
        shutil.rmtree(folder, ignore_errors=True)
        round_number += 1
    part.notes["rounds"] = str(round_number)
    return part


def _cases(part: Part, place: str, folder: Path, random: Random, count: int) -> None:
    drawn = payloads(random, CASES_AT_ONCE, for_files=True)
    kept = [one for one in drawn if _is_usable(part, place, folder / "single", one, count)]
    if len(kept) < 6:
        return
    third = len(kept) // 3

    def make(target: Path, names: Sequence[Payload], only_pages: bool) -> Trial:
        texts = [one.text for one in names]
        labeled, unlabeled, test = texts[:third], texts[third : 2 * third], texts[2 * third :]
        data = write_data(target / "data", labeled=labeled, unlabeled=unlabeled, test=test)
        return _run_all_commands(target, data, only_pages=only_pages)

    # harmless names sort in the same order, so that both pages show the cases in the same order
    _compare(part, place, sorted(kept, key=lambda one: nfc(one.text)), folder, make, count)


def _is_usable(part: Part, place: str, folder: Path, payload: Payload, count: int) -> bool:
    """Return whether prepare accepts a case name. Check the sentence if it does not."""
    trial = Trial(folder)
    write_data(folder / "data", unlabeled=[payload.text])
    recipe = write_recipe(folder / "recipe.yaml")
    words = ("prepare", folder / "data", "--out", folder / "store", "--recipe", recipe)
    is_accepted = trial.run(*words).code == 0
    if not is_accepted:
        trial.run("check", folder / "data", terminal=True)
        trial.run("check", folder / "data")
    _judge(part, place, [payload], trial, count)
    shutil.rmtree(folder)
    return is_accepted


def _classes(part: Part, place: str, folder: Path, random: Random, count: int) -> None:
    drawn = payloads(random, CLASSES_AT_ONCE)
    kept = []
    for one in drawn:
        trial = Trial(folder / "single")
        write_data(trial.folder, classes=["background", one.text])
        recipe = write_recipe(trial.folder / "recipe.yaml")
        if trial.run("prepare", trial.folder, "--out", trial.folder / "store", "--recipe", recipe).code == 0:
            kept.append(one)
        else:
            trial.run("check", trial.folder)
        _judge(part, place, [one], trial, count)
        shutil.rmtree(trial.folder)
    if not kept:
        return

    def make(target: Path, names: Sequence[Payload], only_pages: bool) -> Trial:
        data = write_data(target / "data", classes=["background", *(one.text for one in names)])
        return _run_all_commands(target, data, only_pages=only_pages)

    _compare(part, place, kept, folder, make, count)


def _channels(part: Part, place: str, folder: Path, random: Random, count: int) -> None:
    drawn = payloads(random, CHANNELS_AT_ONCE)

    def make(target: Path, names: Sequence[Payload], only_pages: bool) -> Trial:
        trial = Trial(target)
        data = write_data(target / "data", channels=[one.text for one in names])
        page, plan = target / "out" / "check.html", target / "out" / "plan.yaml"
        trial.run("check", data, "--out", page)
        if not only_pages:
            trial.run("info", data)
            trial.run("plan", data, "--out", plan, "--minutes", "1", terminal=True)
        trial.collect()
        return trial

    _compare(part, place, drawn, folder, make, count)


def _recipe(part: Part, place: str, folder: Path, random: Random, count: int) -> None:
    drawn = payloads(random, 2)

    def make(target: Path, names: Sequence[Payload], only_pages: bool) -> Trial:
        target.mkdir(parents=True)
        texts = {"name": names[0].text, "about": names[1].text}
        return _run_all_commands(target, write_data(target / "data"), texts, only_pages=only_pages)

    _compare(part, place, drawn, folder, make, count)
    inside = {"out", "data", "recipe.yaml"}
    strays = [path.name for path in (folder / "x").iterdir() if path.name not in inside]
    strays += [path.name for path in folder.iterdir() if path.name not in ("x", "y")]
    part.expect(not strays, f"{place}, {drawn[0].kind}: files outside of the given folders, {strays}")


def _dicom(part: Part, place: str, folder: Path, random: Random, count: int) -> None:
    """Write two series into one scan, which an error describes, and a localizer, which a warning describes."""
    for kind in ("two series", "localizer"):
        for payload in payloads(random, 2, without="\x00\\"):
            trial = Trial(folder / kind)
            data = write_data(trial.folder / "data", unlabeled=["c"])
            lengths = (2, 2) if kind == "two series" else (8, 1)
            for series, length in enumerate(lengths):
                for z in range(length):
                    path = data / "imagesUn" / "dicom_0000" / f"{series}-{z}.dcm"
                    write_dicom(path, dicom_slice(z, series=f"1.2.{series + 1}"), partial(_set_tags, payload.text))
            trial.run("check", data, "--out", trial.folder / "out" / "check.html")
            trial.run("check", data, terminal=True)
            trial.run("check", data, "--json")
            words = ("--out", trial.folder / "store", "--recipe", write_recipe(trial.folder / "recipe.yaml"))
            trial.run("prepare", data, *words)
            trial.collect()
            _judge(part, place, [payload], trial, count)
            shutil.rmtree(trial.folder)


def _set_tags(text: str, one: Dataset) -> None:
    for tag in DICOM_TAGS:
        setattr(one, tag, text)
    if text.isascii():
        # the character set of a file does not apply to the modality
        one.Modality = text


PLACES: dict[str, Callable[[Part, str, Path, Random, int], None]] = {
    "case name": _cases,
    "class name": _classes,
    "recipe": _recipe,
    "channel name": _channels,
    "DICOM tag": _dicom,
}


def _run_all_commands(target: Path, data: Path, recipe: dict[str, str] | None = None, *, only_pages: bool) -> Trial:
    """Run every command on a data set, or only the commands that write pages."""
    trial, out = Trial(target), target / "out"
    run, file = out / "run", write_recipe(target / "recipe.yaml", **(recipe or {}))
    trial.run("check", data, "--out", out / "check.html")
    is_trained = trial.run("train", file, "--data", data, "--out", run).code == 0
    if is_trained:
        trial.run("test", run)
    if not is_trained or only_pages:
        trial.collect()
        return trial
    trial.run("check", data, terminal=True)
    trial.run("check", data, "--json")
    trial.run("info", file)
    trial.run("predict", run, data / "imagesTs", "--out", out / "maps")
    trial.run("evaluate", out / "maps", "--reference", data / "labelsTs", terminal=True)
    trial.run("compare", run, run, "--out", out / "comparison")
    trial.run("rank", run, "--out", out / "rank.csv", terminal=True)
    trial.run("rank", run)
    trial.run("info", run, terminal=True)
    trial.run("info", run, "--json")
    trial.run("record", run, "--results", out / "results")
    trial.run("export", "monai", run, "--out", out / "bundle")
    trial.collect()
    return trial


def _compare(part: Part, place: str, names: Sequence[Payload], folder: Path, make: Make, count: int) -> None:
    """Check every output, and compare the structure of every page with the page of harmless names."""
    hostile = make(folder / "x", names, False)
    tame = make(folder / "y", [harmless(one, index) for index, one in enumerate(names)], True)
    _judge(part, place, names, hostile, count)
    kinds = ", ".join(one.kind for one in names)
    for sink, content in hostile.outputs.items():
        if Path(sink).suffix in PAGES and sink in tame.outputs and part.tried < count:
            found = structure_problem(content, tame.outputs[sink])
            part.expect(found is None, f"{place}, {sink}: {found}, with the names {kinds}")


def _judge(part: Part, place: str, names: Sequence[Payload], trial: Trial, count: int) -> None:
    """Count one attempt for every name in every output that it reached."""
    kinds = ", ".join(one.kind for one in names)
    for crash in trial.crashes:
        part.expect(False, f"{place}, {kinds}: {crash}")
    for sink, content in trial.outputs.items():
        for one in names:
            if is_inside(one, content) and part.tried < count:
                found = _problem_or_parse_error(one, sink, content)
                part.expect(found is None, f"{place}, {one.kind}, {sink}: {found}")


def _problem_or_parse_error(payload: Payload, sink: str, content: str) -> str | None:
    try:
        return problem(payload, sink, content)
    except Exception as error:
        return f"cannot be parsed ({type(error).__name__})"
