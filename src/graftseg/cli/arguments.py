"""Arguments and ways to print that the commands share."""

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graftseg.core.errors import Code, UserError

if TYPE_CHECKING:
    from graftseg.data.sources import Sources

    Given = Path | Sources
else:
    Given = Path

Data = Annotated[
    Path | None, typer.Argument(help="Folder with imagesTr, labelsTr and, if any, imagesUn, imagesTs, labelsTs.")
]
SOURCES: dict[str, Any] = {
    "labeled_images": Annotated[Path | None, typer.Option(help="In place of DATA: folder of the labeled images.")],
    "labels": Annotated[Path | None, typer.Option(help="Folder of their label maps.")],
    "unlabeled": Annotated[Path | None, typer.Option(help="Folder of the unlabeled images.")],
    "test_images": Annotated[Path | None, typer.Option(help="Folder of the test images.")],
    "test_labels": Annotated[Path | None, typer.Option(help="Folder of their label maps.")],
}
Run = Annotated[Path, typer.Argument(help="Folder of a training run.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: stages.0.steps=100.")]
Shorter = Annotated[
    int, typer.Option(help="Divide all lengths by this number: steps, ramps, intervals of schedules and scorings.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Results = Annotated[Path, typer.Option(help="Folder of all records.")]


def takes_sources(kind: Any, name: str = "data") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take folders named one by one, as options, in place of its argument ``name`` of this kind."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(**arguments: Any) -> None:
            folders = {option: arguments.pop(option) for option in SOURCES}
            command(**arguments | {name: _given(arguments[name], folders)})

        by_name = inspect.Parameter.KEYWORD_ONLY
        own = [parameter.replace(kind=by_name) for parameter in inspect.signature(command).parameters.values()]
        asked = [one.replace(annotation=kind, default=None) if one.name == name else one for one in own]
        asked += [inspect.Parameter(option, by_name, default=None, annotation=SOURCES[option]) for option in SOURCES]
        # what the command line is made from
        vars(wrapper)["__signature__"] = inspect.Signature(asked)
        wrapper.__annotations__ = {one.name: one.annotation for one in asked}
        return wrapper

    return decorate


def _given(data: Any, folders: dict[str, Path | None]) -> Any:
    """What a person named: a folder, or the folders of labeled images, of labels and perhaps others."""
    named = ["--" + option.replace("_", "-") for option, folder in folders.items() if folder is not None]
    if data is not None and named:
        raise UserError(
            Code.OPTION_CONFLICT, named[0], f"stands beside {data}", "name one folder of data, or folders one by one"
        )
    if data is not None:
        return data
    images, labels = folders["labeled_images"], folders["labels"]
    if images is None or labels is None:
        finding = "no data are named" if not named else "not enough without --labeled-images and --labels"
        raise UserError(
            Code.OPTION_INVALID,
            named[0] if named else "DATA",
            finding,
            "name a folder, or --labeled-images and --labels",
        )
    from graftseg.data.sources import Sources

    return Sources(images, labels, folders["unlabeled"], folders["test_images"], folders["test_labels"])


def as_typed(data: Given) -> str:
    """The options that name data again, as they were given."""
    named = {"data": data} if isinstance(data, Path) else vars(data)
    return " ".join(f"--{one.replace('_', '-')} {quote(str(path))}" for one, path in named.items() if path is not None)


def tell_once(sentences: Iterable[object]) -> None:
    """Tell what went wrong, each sentence once: a package that is missing is missing for every scan."""
    for sentence in dict.fromkeys(map(str, sentences)):
        typer.echo(f"graftseg: {sentence}", err=True)


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print plain values, for a person or for a program."""
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    import yaml

    typer.echo(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=120), nl=False)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table that fits the terminal, with what is too wide under its row; without a terminal, cells by tabs."""
    from rich.console import Console
    from rich.text import Text

    from graftseg.core.text_tables import format_table

    console = Console()
    if not console.is_terminal:
        for row in (head, *rows):
            typer.echo("\t".join(row))
        return
    laid = format_table(head, rows, console.width)
    for lines, style in ((laid.head, "bold"), (laid.body, "")):
        for line in lines:
            console.print(Text(line, style=style), soft_wrap=True)
