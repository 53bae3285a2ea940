"""The command ``rank``: list the unlabeled scans that are most worth annotating."""

from pathlib import Path
from typing import Annotated

import typer

from graftseg.cli.arguments import Device, On, Run
from graftseg.cli.output import print_errors, print_table, say
from graftseg.core.phrases import counted
from graftseg.inference.ranking import DEFAULT_ORDER, Order


def rank(
    run: Run,
    data: Annotated[
        Path | None, typer.Option(help="Prepared store or folder of scans; by default the training data of the run.")
    ] = None,
    by: Annotated[
        Order,
        typer.Option(
            help="uncertainty: uncertain scans, and scans that differ from the labeled scans, first; "
            "coverage: scans that represent many uncertain scans first."
        ),
    ] = DEFAULT_ORDER,
    top: Annotated[int, typer.Option(min=1, help="Number of scans to print.")] = 10,
    out: Annotated[Path | None, typer.Option(help="CSV file for the ranking of all scans, such as rank.csv.")] = None,
    device: Device = "auto",
    on: On = None,
) -> None:
    """List the unlabeled scans that are most worth annotating next, with reasons."""
    from graftseg import api
    from graftseg.inference.ranking.rank import HEAD

    ranking = api.rank(run, data, by=by, out=out, device=device, on=on)
    print_table(HEAD, ranking.lines(top))
    if shared := ranking.in_common():
        say(shared)
    if out is not None:
        say(f"{out}: {counted(len(ranking.rows), 'scan')}")
    for sentence in ranking.unlearned:
        say(sentence)
    print_errors(ranking.failures)
    if ranking.failures:
        raise typer.Exit(2)
