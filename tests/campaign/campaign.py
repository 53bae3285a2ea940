"""Attack the program in many ways and count how often it keeps its promises: ``make campaign``.

Every part makes random attempts, which the seed determines. The exit code is 1 if a promise was broken. ``--page``
writes the counts to a page of the documentation, and keeps the counts of parts that were not run.
"""

import argparse
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from annotation_kills import kill_annotations
from archives import archives
from bombs import bombs
from damage import damage_files
from file_mutants import bit_flips, file_mutants
from identifiers import identifiers
from injections import injections
from kills import kill_predictions, kill_preparations, kill_saves, kill_trainings
from part import Part
from rank_kills import kill_ranks
from soak import soak
from special_files import special_files

from graftseg.core.phrases import duration
from graftseg.core.progress import hide_progress
from graftseg.core.version import __version__

Attack = Callable[[Path, int, int], Part]
PARTS: Mapping[str, tuple[Attack, int]] = {
    "kills": (kill_trainings, 1000),
    "soak": (soak, 20_000),
    "damage": (damage_files, 15_000),
    "mutants": (file_mutants, 2000),
    "flips": (bit_flips, 1000),
    "injections": (injections, 2500),
    "saves": (kill_saves, 0),
    "predictions": (kill_predictions, 0),
    "preparations": (kill_preparations, 0),
    "annotations": (kill_annotations, 0),
    "bombs": (bombs, 80),
    "ranks": (kill_ranks, 30),
    "archives": (archives, 240),
    "identifiers": (identifiers, 200),
    "special": (special_files, 1000),
}
"""The parts with their numbers of attempts, about the longest first. Mutants and flips are attempted for every format.
0 means as many attempts as there are calls to interrupt. ``bombs``, ``identifiers`` and ``special`` make fewer attempts
if there are fewer files, places or combinations."""
TITLES = {
    "kills": "kills of a training",
    "saves": "kills of a save before every change of a file",
    "predictions": "kills of a prediction before every change of a file",
    "preparations": "kills of a preparation before every change of a file",
    "annotations": "kills of an annotation before every change of a file",
    "ranks": "kills of a rank",
    "damage": "damaged files of runs, exports and stores",
    "mutants": "mutants of scans",
    "flips": "flipped bits in scans with a checksum",
    "bombs": "bombs",
    "archives": "archives",
    "special": "special files",
    "injections": "injections",
    "identifiers": "identifiers",
    "soak": "soak",
}
"""Titles of the parts, in the order of the page."""

TABLE_HEAD = ("| attack | promise | attempts | kept | commit | date |", "|---|---|---|---|---|---|")
ROOT = Path(__file__).parents[2]
TASKS = {"kills": 4, "mutants": 2}
"""Number of processes that share the attempts of a part."""


def attack(name: str, seed: int, share: float) -> tuple[Part, float]:
    """Make the attempts of one part, or only a share of them."""
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    hide_progress(True)
    run, count = PARTS[name]
    work = Path(tempfile.mkdtemp(prefix=f"campaign-{name}-"))
    began = time.monotonic()
    try:
        part = run(work, seed, max(1, round(count * share)))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return part, time.monotonic() - began


def main() -> int:
    """Run the parts and print their counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS), help="run only these parts")
    parser.add_argument("--share", type=float, default=1.0, help="share of the attempts to make")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--page", type=Path, help="page to write")
    arguments = parser.parse_args()
    tasks, run = {name: TASKS.get(name, 1) for name in arguments.only}, run_at()
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as pool:
        running = {
            name: [
                pool.submit(attack, name, count * arguments.seed + task, arguments.share / count)
                for task in range(count)
            ]
            for name, count in tasks.items()
        }
        parts = [_show([future.result() for future in futures]) for futures in running.values()]
    if arguments.page:
        before = arguments.page.read_text(encoding="utf-8") if arguments.page.is_file() else ""
        arguments.page.write_text(page(parts, arguments.seed, run, before), encoding="utf-8")
    return int(any(part.failures for part in parts))


def _show(results: Sequence[tuple[Part, float]]) -> Part:
    """Print the counts of a part, and return its tasks as one part."""
    (part, _), *others = results
    for other, _ in others:
        part.add(other)
    print(
        f"{part.name}: {part.kept} of {part.tried}: {part.promise} ({duration(sum(s for _, s in results))})", flush=True
    )
    for failure in part.failures[:20]:
        print(f"  {failure}", flush=True)
    return part


def run_at() -> str:
    """Return the current commit, marked if the code was changed after it, and the date, as two cells."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    try:
        commit = git("rev-parse", "--short=8", "HEAD")
        commit += " with changes" if git("status", "--porcelain", "--", "src", "tests") else ""
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return f"{commit} | {datetime.now(UTC).date()}"


def page(parts: Sequence[Part], seed: int, run: str, before: str = "") -> str:
    """Return the counts as a page. ``run`` has the cells with commit and date of these parts.

    Rows and notes of parts that were not run are taken from the page ``before``. Rows with other titles are dropped.
    """
    lines = before.partition("\n## ")[0].splitlines()
    rows = {title: f"| {title} | | never run | | | |" for title in TITLES.values()}
    rows |= {title: line for line in lines if (title := line.split(" | ")[0][2:]) in rows and line.startswith("| ")}
    notes = {title: line for line in lines if (title := line[2:].split(": ")[0]) in rows and line.startswith("- ")}
    for part in parts:
        rows[part.name] = f"| {part.name} | {part.promise} | {part.tried:,} | {part.kept:,} | {run} |"
        notes[part.name] = f"- {part.name}: {'; '.join(part.shown_notes)}" if part.shown_notes else ""
    ordered_notes = [notes[title] for title in rows if notes.get(title)]
    table = "\n".join([*TABLE_HEAD, *rows.values()])
    head = Path(__file__).with_name("page.md").read_text(encoding="utf-8")
    return head.format(version=__version__, seed=seed, table=table, notes="\n".join(ordered_notes)).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
