"""Simulate an annotator on MSD Hippocampus: rank, label, continue the training, and repeat.

``python benchmarks/annotation_loop.py DATA --work WORK``. DATA is the folder Task04_Hippocampus. The true label map of
a scan plays the annotator. Each seed draws other test scans and other first labels. All arms of a seed start from the
same network, if they share WORK:

- ``ranked`` labels the first scans of ``graftseg rank --by uncertainty``.
- ``covering`` labels the first scans of ``graftseg rank --by coverage``.
- ``random`` labels random scans.

Scans are never moved: an annotated scan stays in ``imagesUn``, and its label map is added to ``labelsTr``.

Every round is recorded in ``RESULTS/seed-N-ARM.json``. The script can be stopped and started again with the same WORK.
Arms whose records are complete are skipped, and ``--arms`` limits the others.
``--plot FILE`` draws the records as an SVG file and prints them as a table instead.
"""

import argparse
import json
import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from numpy.typing import NDArray

import graftseg
from graftseg.core.devices import choose_device, hardware_name
from graftseg.core.files import read_json, write_json, write_text
from graftseg.core.run_folder import RunFolder
from graftseg.data.scans import read_label
from graftseg.reporting.svg import Axis, element, points

ARMS = ("ranked", "covering", "random")
RECIPE = Path(__file__).with_suffix(".yaml")
RESULTS = Path(__file__).resolve().parents[1] / "results" / "annotation-loop"
FOLDERS = ("imagesTr", "labelsTr", "imagesUn", "imagesTs", "labelsTs")


@dataclass(frozen=True)
class Settings:
    """Settings of the simulation. ``labels`` are the numbers of labels at the end of the rounds, the first one given.

    ``fraction`` is passed to ``continue_training``, and ``overrides`` change the recipe of the first training.
    """

    source: Path
    work: Path
    results: Path
    device: str = "auto"
    labels: tuple[int, ...] = (3, 6, 9, 12, 15, 18, 20)
    unlabeled: int = 80
    test: int = 30
    fraction: float | None = None
    overrides: tuple[str, ...] = ()
    until: float = float("inf")
    arms: tuple[str, ...] = ARMS

    @property
    def is_over(self) -> bool:
        """Whether no new round may start."""
        return time.time() > self.until


@dataclass
class Arm:
    """The data folder, the current run and the record of one arm of a seed."""

    settings: Settings
    seed: int
    name: str
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of data and runs."""
        return self.settings.work / f"seed-{self.seed}-{self.name}"

    @property
    def path(self) -> Path:
        """The file of the record."""
        return self.settings.results / f"seed-{self.seed}-{self.name}.json"

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "scans"

    def run_of(self, labels: int) -> Path:
        """Return the run that was trained with this number of labels. The first run is shared by all arms."""
        first = labels == self.settings.labels[0]
        return (self.settings.work / f"seed-{self.seed}-first" if first else self.folder) / f"labels-{labels}"

    def load(self) -> "Arm":
        """Load the record, if there is one."""
        self.record = read_json(self.path) if self.path.is_file() else {}
        return self

    def begin(self) -> None:
        """Start from the first labels, unless the last recorded run still exists."""
        rounds = self.record.get("rounds", [])
        if rounds and self.data.is_dir() and _is_finished(self.run_of(rounds[-1]["labels"])):
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.settings.work / f"seed-{self.seed}-first" / "scans", self.data)
        hardware = hardware_name(choose_device(self.settings.device))
        self.record = {"seed": self.seed, "arm": self.name, "hardware": hardware, "rounds": []}

    @property
    def is_done(self) -> bool:
        """Whether all rounds are recorded."""
        rounds = self.record.get("rounds", [])
        return bool(rounds) and rounds[-1]["labels"] >= self.settings.labels[-1]

    def play(self) -> None:
        """Play the rounds that are not recorded yet. A round that was stopped is played again."""
        done = self.record["rounds"][-1]["labels"] if self.record["rounds"] else self.settings.labels[0]
        for labels in self.settings.labels:
            if labels <= done or self.settings.is_over:
                continue
            self.play_round(done, labels)
            done = labels

    def play_round(self, before: int, labels: int) -> None:
        """Choose scans, add their true label maps, continue the training, and record the result."""
        run, new = self.run_of(before), self.run_of(labels)
        began = time.monotonic()
        chosen = self.choose(run, labels - before)
        ranked = time.monotonic()
        corrected = self.corrected_voxels(run, chosen)
        for name in chosen:
            shutil.copy(_file(self.settings.source, "labelsTr", name), self.data / "labelsTr")
        shutil.rmtree(new, ignore_errors=True)
        resumed = time.monotonic()
        options: dict[str, Any] = {"fraction": self.settings.fraction, "device": self.settings.device}
        result = graftseg.continue_training(run, new, data=self.data, **options)
        trained = time.monotonic()
        gain, trained_with = result.gain, RunFolder(new).manifest()["store"]["labeled"]
        if gain is None or gain.after is None or len(trained_with) != labels:
            raise RuntimeError(f"{new}: wrong number of labels, or the gain was not measured on the test scans")
        rounds = self.record["rounds"]
        if not rounds:
            rounds.append({"labels": before, "dice": round(gain.before, 3)})
        rounds.append(
            {
                "labels": labels,
                "dice": round(gain.after, 3),
                "chosen": chosen,
                "corrected_voxels": corrected,
                "seconds": {
                    "rank": round(ranked - began, 1),
                    "continue": round(trained - resumed, 1),
                    "steps": round(result.outcome.seconds, 1),
                },
            }
        )
        write_json(self.path, self.record)
        print(json.dumps({"seed": self.seed, "arm": self.name, **rounds[-1]}), flush=True)

    def choose(self, run: Path, count: int) -> list[str]:
        """Return the scans to annotate next."""
        if self.name != "random":
            by: Literal["uncertainty", "coverage"] = "coverage" if self.name == "covering" else "uncertainty"
            return [row.case for row in graftseg.rank(run, by=by, device=self.settings.device).rows[:count]]
        # the run knows the unlabeled scans also if a stopped round has already added label maps
        unlabeled = sorted(RunFolder(run).manifest()["store"]["unlabeled"])
        return random.Random(f"{self.seed} {len(unlabeled)}").sample(unlabeled, count)

    def corrected_voxels(self, run: Path, cases: Sequence[str]) -> list[int]:
        """Return for each scan the number of voxels in which the prediction differs from the true label map."""
        scans, out = self.folder / "chosen", self.folder / "predicted"
        for folder in (scans, out):
            shutil.rmtree(folder, ignore_errors=True)
        scans.mkdir()
        for name in cases:
            shutil.copy(_file(self.data, "imagesUn", name), scans)
        graftseg.predict(run, scans, out, device=self.settings.device)
        return [int((read_label(_file(out, "", name)).array != self.true_label(name)).sum()) for name in cases]

    def true_label(self, case: str) -> NDArray[Any]:
        """Return the true label map of a scan."""
        return read_label(_file(self.settings.source, "labelsTr", case)).array


def _file(root: Path, folder: str, name: str) -> Path:
    return root / folder / f"{name}.nii.gz"


def _is_finished(path: Path) -> bool:
    run = RunFolder(path)
    return run.exists and run.manifest().get("status") == "finished"


def write_split(settings: Settings, seed: int, out: Path) -> None:
    """Copy a random split of the data set: the first labeled scans, the unlabeled scans and the test scans."""
    names = sorted(path.name for path in (settings.source / "imagesTr").glob("*.nii.gz"))
    random.Random(seed).shuffle(names)
    first = settings.labels[0]
    test, rest = names[: settings.test], names[settings.test :][: first + settings.unlabeled]
    for folder in FOLDERS:
        (out / folder).mkdir(parents=True)
    for images, labels, chosen in (("imagesTr", "labelsTr", rest[:first]), ("imagesTs", "labelsTs", test)):
        for name in chosen:
            shutil.copy(settings.source / "imagesTr" / name, out / images)
            shutil.copy(settings.source / "labelsTr" / name, out / labels)
    for name in rest[first:]:
        shutil.copy(settings.source / "imagesTr" / name, out / "imagesUn")


def simulate(settings: Settings, seed: int) -> None:
    """Train the first network of a seed, then play its arms."""
    arms = [Arm(settings, seed, name).load() for name in settings.arms]
    if not (left := [arm for arm in arms if not arm.is_done]):
        return
    first = settings.work / f"seed-{seed}-first"
    run = arms[0].run_of(settings.labels[0])
    if not _is_finished(run):
        if settings.is_over:
            return
        shutil.rmtree(first, ignore_errors=True)
        write_split(settings, seed, first / "scans")
        began = time.monotonic()
        changes = [f"seed={seed}", *settings.overrides]
        graftseg.train(RECIPE, first / "scans", run, overrides=changes, device=settings.device)
        print(json.dumps({"seed": seed, "first_seconds": round(time.monotonic() - began, 1)}), flush=True)
    for arm in left:
        arm.begin()
        arm.play()


COLORS = {"ranked": "#0072b2", "covering": "#009e73", "random": "#d55e00"}
STYLE = """\
svg{background:#fff;font:12px system-ui,sans-serif;fill:#222}
.name{font-weight:600}.grid{stroke:#e4e4e4}.mean{fill:none;stroke-width:2}.one{fill:none;stroke-opacity:.25}
"""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, GAP = 380.0, 260.0, 52.0, 12.0, 44.0, 40.0, 24.0


def picture(records: Sequence[dict[str, Any]]) -> str:
    """Return an SVG file with two panels: Dice, and corrected voxels per scan, both against the number of labels.

    Thin lines are single seeds, and thick lines are means over the seeds.
    """
    panels = {
        "mean Dice on test scans, %": [(r, curve(r, "dice")) for r in records],
        "corrected voxels per annotated scan": [(r, curve(r, "corrected_voxels")) for r in records],
    }
    drawn = [
        part
        for index, (title, curves) in enumerate(panels.items())
        for part in _panel(title, curves, index * (WIDTH + GAP))
    ]
    size = {"width": f"{2 * WIDTH + GAP:g}", "height": f"{HEIGHT:g}", "viewBox": f"0 0 {2 * WIDTH + GAP:g} {HEIGHT:g}"}
    title = element("title", "Simulated annotation of MSD Hippocampus: ranked, covering and random choice of scans")
    return element("svg", title, element("style", STYLE), *drawn, xmlns="http://www.w3.org/2000/svg", **size) + "\n"


def curve(record: dict[str, Any], key: str) -> dict[int, float]:
    """Return a value of every round by the number of labels; lists are averaged."""
    found = {one["labels"]: one[key] for one in record["rounds"] if key in one}
    return {labels: fmean(value) if isinstance(value, list) else float(value) for labels, value in found.items()}


def means(curves: Iterable[dict[int, float]]) -> dict[int, float]:
    """Return the mean at every number of labels that all curves have."""
    listed = list(curves)
    shared = sorted(set(listed[0]).intersection(*listed[1:])) if listed else []
    return {labels: fmean(one[labels] for one in listed) for labels in shared}


def _panel(title: str, curves: Sequence[tuple[dict[str, Any], dict[int, float]]], left: float) -> list[Any]:
    values = [value for _, one in curves for value in one.values()]
    labels = [count for _, one in curves for count in one]
    x = Axis.between(min(labels), max(labels), left + LEFT, left + WIDTH - RIGHT, 6)
    y = Axis.enclosing(values, HEIGHT - BOTTOM, TOP)
    drawn = [element("text", title, class_="name", x=left + 4, y=14), *y.rows(left + LEFT, left + WIDTH - RIGHT)]
    bottom = HEIGHT - BOTTOM + 16
    drawn += [
        element("text", str(tick), x=f"{x.at(tick):.1f}", y=bottom, text_anchor="middle") for tick in sorted({*labels})
    ]
    middle = left + (LEFT + WIDTH - RIGHT) / 2
    drawn.append(element("text", "labeled scans", x=f"{middle:g}", y=HEIGHT - 6, text_anchor="middle"))
    recorded = [arm for arm in COLORS if any(record["arm"] == arm and one for record, one in curves)]
    for place, arm in enumerate(recorded):
        color, own = COLORS[arm], [one for record, one in curves if record["arm"] == arm and one]
        for one, kind in [*((one, "one") for one in own), (means(own), "mean")]:
            path = points([x.at(count) for count in one], [y.at(value) for value in one.values()])
            drawn.append(element("polyline", class_=kind, stroke=color, points=path))
        drawn.append(element("text", f"{arm} ({len(own)} seeds)", x=left + LEFT + 112 * place, y=32, fill=color))
    return drawn


def summary(records: Sequence[dict[str, Any]]) -> str:
    """Return Markdown tables that compare every other recorded arm with the random arm."""
    recorded = [arm for arm in ARMS[:-1] if any(one["arm"] == arm for one in records)]
    return "\n".join(_table(records, (arm, "random")) for arm in recorded)


def _table(records: Sequence[dict[str, Any]], names: tuple[str, str]) -> str:
    """Return a Markdown table of the seeds that have both arms.

    The columns of the arms are the mean Dice on test scans. ``corrected voxels`` are means per annotated scan, and
    ``seconds`` is the mean time from new labels to the next suggestion, for the first and for the second arm.
    """
    arms = [{one["seed"]: one for one in records if one["arm"] == arm} for arm in names]
    seeds = sorted(arms[0].keys() & arms[1].keys())
    head = ("labels", "seeds", *names, "difference", f"{names[0]} is better", "corrected voxels", "seconds")
    lines = [head, ("---",) * len(head)]
    rounds = [[{one["labels"]: one for one in arm[seed]["rounds"]} for seed in seeds] for arm in arms]
    for labels in sorted({count for arm in rounds for one in arm for count in one}):
        pairs = [(a[labels], b[labels]) for a, b in zip(*rounds, strict=True) if labels in a and labels in b]
        if not pairs:
            continue
        dice = [fmean(one["dice"] for one in arm) for arm in zip(*pairs, strict=True)]
        better = sum(one["dice"] > other["dice"] for one, other in pairs)
        cells = [str(labels), str(len(pairs)), f"{dice[0]:.2f}", f"{dice[1]:.2f}", f"{dice[0] - dice[1]:+.2f}"]
        cells += [f"{better} of {len(pairs)}", _both(pairs, _corrected), _both(pairs, _seconds)]
        lines.append(tuple(cells))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _both(pairs: Sequence[tuple[dict[str, Any], ...]], value: Callable[[dict[str, Any]], float]) -> str:
    """Return the mean value of both arms as text, or a dash for the first labels, which nobody chose."""
    if any("chosen" not in one for pair in pairs for one in pair):
        return "-"
    return " / ".join(f"{fmean(map(value, arm)):.0f}" for arm in zip(*pairs, strict=True))


def _corrected(one: dict[str, Any]) -> float:
    return fmean(one["corrected_voxels"])


def _seconds(one: dict[str, Any]) -> float:
    return float(one["seconds"]["rank"] + one["seconds"]["continue"])


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Return all records in a folder: the list in ``records.json``, and one file for each other arm of a seed."""
    collected = folder / "records.json"
    listed: list[dict[str, Any]] = read_json(collected) if collected.is_file() else []
    return [*listed, *(read_json(path) for path in sorted(folder.glob("seed-*.json")))]


def main() -> None:
    """Simulate all seeds, or draw the records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder Task04_Hippocampus")
    parser.add_argument("--work", type=Path, help="folder for data and runs, outside of the repository")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--plot", type=Path, help="draw the records as an SVG file and print a table")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--processes", type=int, default=1, help="number of seeds at the same time")
    parser.add_argument("--labels", default="3,6,9,12,15,18,20", help="numbers of labels, the first one given")
    parser.add_argument("--unlabeled", type=int, default=80)
    parser.add_argument("--test", type=int, default=30)
    parser.add_argument("--fraction", type=float, help="of the steps in each round")
    parser.add_argument("--set", action="append", default=[], help="override a setting of the recipe")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no round after this time")
    given = parser.parse_args()
    if given.plot is not None:
        write_text(given.plot, picture(read_records(given.results)))
        print(summary(read_records(given.results)), end="")
        return
    if given.data is None or given.work is None:
        parser.error("DATA and --work are required")
    settings = Settings(
        source=given.data.resolve(),
        work=given.work.resolve(),
        results=given.results.resolve(),
        device=given.device,
        labels=tuple(map(int, given.labels.split(","))),
        unlabeled=given.unlabeled,
        test=given.test,
        fraction=given.fraction,
        overrides=tuple(given.set),
        until=time.time() + given.seconds,
        arms=tuple(given.arms),
    )
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        for job in [pool.submit(simulate, settings, seed) for seed in range(given.seeds)]:
            job.result()


if __name__ == "__main__":
    main()
