"""The commands that open a page in the browser."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from graftseg.cli.arguments import Device, Run
from graftseg.cli.output import say

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 chooses a free port.")]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")]


def view(
    what: Annotated[Path, typer.Argument(help="Run, folder of data, folder of label maps, or scan.")],
    case: Annotated[str, typer.Option(help="Case to show first.")] = "",
    port: Port = 0,
    browser: Browser = True,
    follow: Annotated[bool, typer.Option("--follow", hidden=True, help="For train --live.")] = False,
) -> None:
    """Show scans, label maps and scores in the browser, or the progress of a run that is being trained."""
    require_server()
    from graftseg.reporting.viewer import view as viewer

    if follow:
        viewer.follow(what, sys.stdin.buffer, lambda address: say(f"live page: {address}"), port=port, browser=browser)
    else:
        viewer.view(what, _print_address, case=case, port=port, browser=browser)


def annotate(
    run: Run,
    data: Annotated[
        Path | None, typer.Option(help="Folder of data; by default, the folder that the run was trained on.")
    ] = None,
    case: Annotated[str, typer.Option(help="Case to show first; by default, the most useful one.")] = "",
    port: Port = 0,
    browser: Browser = True,
    device: Device = "auto",
) -> None:
    """Correct predictions in the browser and save them as labels. The most useful scan is shown first."""
    require_server()
    from graftseg.core.devices import choose_device
    from graftseg.core.run_folder import RunFolder
    from graftseg.reporting.viewer.annotate import annotate

    annotate(RunFolder(run), data, choose_device(device), _print_address, case=case, port=port, browser=browser)


def require_server() -> None:
    """Raise a UserError if the packages of the web server are not installed."""
    from graftseg.core.packages import import_optional

    for package in ("starlette", "uvicorn"):
        import_optional(package, "the viewer")


def _print_address(address: str) -> None:
    say(f"{address} (Ctrl-C stops the server)")
