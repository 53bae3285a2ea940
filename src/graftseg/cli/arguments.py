"""Arguments and options shared by the commands."""

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graftseg.core.errors import Code, UserError

if TYPE_CHECKING:
    from graftseg.data.sources import Sources

    PathOrSources = Path | Sources
else:
    PathOrSources = Path

Data = Annotated[
    Path | None, typer.Argument(help="Folder with imagesTr, labelsTr and optional imagesUn, imagesTs, labelsTs.")
]
SOURCES: dict[str, Any] = {
    "labeled_images": Annotated[Path | None, typer.Option(help="Instead of DATA: folder of the labeled images.")],
    "labels": Annotated[Path | None, typer.Option(help="Folder of the label maps of the labeled images.")],
    "unlabeled": Annotated[Path | None, typer.Option(help="Folder of the unlabeled images.")],
    "test_images": Annotated[Path | None, typer.Option(help="Folder of the test images.")],
    "test_labels": Annotated[Path | None, typer.Option(help="Folder of the label maps of the test images.")],
}
Run = Annotated[Path, typer.Argument(help="Folder of a training run.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: stages.0.steps=100.")]
Shorter = Annotated[
    int, typer.Option(help="Divide all lengths by this number: steps, ramps, schedules and validation intervals.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
On = Annotated[str | None, typer.Option("--on", help="Run the tasks on a Ray cluster: ray, or ray://HOST:PORT.")]
Results = Annotated[Path, typer.Option(help="Folder of all records.")]
AllowMissing = Annotated[
    bool, typer.Option("--allow-missing", help="Skip label maps and references without a counterpart.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print output and errors as JSON.")]
JsonErrors = Annotated[bool, typer.Option("--json", help="Print errors and warnings as JSON on stderr.")]


def with_json_errors(function: Callable[..., None]) -> Callable[..., None]:
    """Add the option ``--json`` to a command, unless the command has its own option ``--json``."""
    parameters = inspect.signature(function).parameters
    if {"as_json", "json_file"} & parameters.keys():
        return function

    @functools.wraps(function)
    def command(*, json_errors: bool, **arguments: Any) -> None:
        # the option is read before the command line is parsed, by output.wants_json
        function(**arguments)

    by_name = inspect.Parameter.KEYWORD_ONLY
    option = inspect.Parameter("json_errors", by_name, default=False, annotation=JsonErrors)
    return _with_parameters(command, [*parameters.values(), option])


def takes_sources(annotation: Any, name: str = "data") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options for separate folders to a command, as an alternative to its argument ``name``.

    ``annotation`` is the annotation of this argument on the command line.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**arguments: Any) -> None:
            folders = {option: arguments.pop(option) for option in SOURCES}
            is_optional = arguments.get("continue_from") is not None
            function(**arguments | {name: _data_from(arguments[name], folders, is_optional=is_optional)})

        parameters = dict(inspect.signature(function).parameters)
        parameters[name] = parameters[name].replace(annotation=annotation, default=None)
        by_name = inspect.Parameter.KEYWORD_ONLY
        options = [inspect.Parameter(key, by_name, default=None, annotation=SOURCES[key]) for key in SOURCES]
        return _with_parameters(command, [*parameters.values(), *options])

    return decorate


def _with_parameters(command: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Set the signature from which Typer creates the options of a command."""
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    vars(command)["__signature__"] = inspect.Signature(keywords)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return command


def _data_from(data: Any, folders: dict[str, Path | None], *, is_optional: bool) -> Any:
    """Return the data folder, or separate folders as ``Sources``, or None if there is no data and data is optional."""
    named = ["--" + option.replace("_", "-") for option, folder in folders.items() if folder is not None]
    if data is not None and named:
        finding, remedy = f"cannot be combined with {data}", "pass one folder or separate folders"
        raise UserError(Code.OPTION_CONFLICT, named[0], finding, remedy)
    if data is not None:
        return data
    if is_optional and not named:
        return None
    images, labels = folders["labeled_images"], folders["labels"]
    if images is None or labels is None:
        finding = "--labeled-images and --labels are missing" if named else "no data given"
        remedy = "pass a folder, or --labeled-images and --labels"
        raise UserError(Code.OPTION_INVALID, named[0] if named else "DATA", finding, remedy)
    from graftseg.data.sources import Sources

    return Sources(images, labels, folders["unlabeled"], folders["test_images"], folders["test_labels"])


def data_options(data: PathOrSources) -> str:
    """Return the options that pass the same data to another command."""
    paths = {"data": data} if isinstance(data, Path) else vars(data)
    options = {f"--{name.replace('_', '-')}": path for name, path in paths.items() if path is not None}
    return " ".join(f"{option} {quote(str(path))}" for option, path in options.items())
