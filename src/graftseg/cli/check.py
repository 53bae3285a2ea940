"""The command ``check``: report problems of a folder of scans."""

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from graftseg.cli.arguments import AsJson, Data, PathOrSources, takes_sources
from graftseg.cli.output import print_table, say
from graftseg.core.phrases import counted

if TYPE_CHECKING:
    from graftseg.data.check import Examination
    from graftseg.data.fix import FixedCopy


@takes_sources(Data)
def check(
    data: PathOrSources,
    out: Annotated[Path | None, typer.Option(help="HTML page to write: findings, distributions, pictures.")] = None,
    fix: Annotated[
        Path | None,
        typer.Option(
            help="New folder for a copy in which rounded headers, mirrored labels and gaps in label values are fixed."
        ),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Leave broken cases out of the copy that --fix writes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Report the contents and problems of a folder of scans, and how to fix them. Exit with 2 if there are errors."""
    from graftseg import api

    examination = api.check(data, out=out, fix=fix, drop=drop)
    if as_json:
        say(json.dumps(examination.to_json(), indent=2, allow_nan=False))
    else:
        _print_examination(examination, data)
        if out is not None:
            say(out)
    if examination.errors:
        raise typer.Exit(2)


def _print_examination(examination: "Examination", data: PathOrSources) -> None:
    rows = [(each.severity, each.what, each.where, each.size, _with_path(each.remedy, data)) for each in examination]
    if rows:
        print_table(("", "finding", "where", "how large", "remedy"), rows)
    likenesses = (examination.likeness, examination.test_likeness)
    for sentence in dict.fromkeys(likeness.sentence for likeness in likenesses if likeness.kind != "alone"):
        say(sentence)
    if examination.mended is not None:
        _print_copy(examination.mended)
    broken = {split: f" ({count} broken)" if count else "" for split, count in examination.broken.items()}
    counts = examination.counts.items()
    scans = ", ".join(f"{count} {split}{broken[split]}" for split, count in counts if count or split != "validation")
    findings = counted(len(examination), "finding")
    say(f"{scans} scans; {findings}, {examination.errors} of them errors")


def _with_path(remedy: str, data: PathOrSources) -> str:
    """Insert the data folder into the command of a remedy. ``--fix`` needs one folder instead of separate folders."""
    from graftseg.data.checks.findings import FIX

    if isinstance(data, Path):
        return remedy.replace(FIX, FIX.replace("DATA", quote(str(data))))
    return remedy.replace(FIX, f"if the scans are in DATA/imagesTr and the labels in DATA/labelsTr, {FIX}")


def _print_copy(copy: "FixedCopy") -> None:
    for reason in copy.left:
        say(f"not fixed: {reason}")
    if copy.folder is None:
        say("nothing was fixed, so no copy was written")
        return
    if copy.files:
        print_table(("file", "fixed"), sorted(copy.files.items()))
    if copy.dropped:
        print_table(("left out", "because"), sorted(copy.dropped.items()))
    for old, new in copy.values.items():
        name = f" ({copy.classes[new]})" if new in copy.classes else ""
        say(f"label value {old} is now {new}{name}")
    files = counted(len(copy.files), "file")
    dropped = f", {len(copy.dropped)} left out" if copy.dropped else ""
    say(f"{copy.folder}: {files} fixed{dropped}, {copy.unchanged} unchanged; check the copy, too")
