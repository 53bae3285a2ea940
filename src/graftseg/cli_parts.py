"""Arguments and ways to print that the commands share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

Data = Annotated[Path, typer.Argument(help="Folder with imagesTr, labelsTr and, if any, imagesUn, imagesTs, labelsTs.")]
Run = Annotated[Path, typer.Argument(help="Folder of a training run.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: stages.0.steps=100.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Results = Annotated[Path, typer.Option(help="Folder of all records.")]


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print plain values, for a person or for a program."""
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    import yaml

    typer.echo(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=120), nl=False)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table that fits the terminal by folding its cells; without a terminal, cells divided by tabs."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        for row in (head, *rows):
            typer.echo("\t".join(row))
        return
    table = Table()
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
