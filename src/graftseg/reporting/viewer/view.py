"""View a run, a folder of data, a folder of label maps or one scan in the browser."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from graftseg.core.reading import read_text
from graftseg.core.run_folder import RunFolder
from graftseg.recipes.baseline import own_baseline
from graftseg.reporting.run_page import render_report
from graftseg.reporting.viewer.access import Access
from graftseg.reporting.viewer.case_reader import CaseReader
from graftseg.reporting.viewer.collection import collect, first_case, require_case
from graftseg.reporting.viewer.launch import listen, require_front_end, serve
from graftseg.reporting.viewer.live import live_routes
from graftseg.reporting.viewer.live_page import Parent, wait_for_run
from graftseg.reporting.viewer.server import Viewer, create_app


def view(
    what: Path, print_address: Callable[[str], None], *, case: str = "", port: int = 0, browser: bool = True
) -> None:
    """Show ``what`` in the browser until Ctrl-C. ``print_address`` is called with the address of the page."""
    require_front_end()
    _serve(what, print_address, case, port, browser)


def follow(
    run: Path, pipe: IO[bytes], print_address: Callable[[str], None], *, port: int = 0, browser: bool = True
) -> None:
    """Show a run until its training ends. The training process closes ``pipe`` when it ends."""
    require_front_end()
    parent = Parent(pipe)
    if wait_for_run(RunFolder(run), parent):
        _serve(run, print_address, "", port, browser, parent)


def _serve(
    what: Path, print_address: Callable[[str], None], case: str, port: int, browser: bool, parent: Parent | None = None
) -> None:
    collection = collect(what)
    require_case(collection, case, what)
    run = RunFolder(what)
    is_live = parent is not None or (run.exists and run.status == "running")
    viewer = Viewer(collection, CaseReader(collection.cases), report_of(run), is_live)
    if not is_live and (number := first_case(collection, case)) is not None:
        viewer.reader.read_ahead(number)
    listener = listen(port)
    access = Access(listener.getsockname()[1])
    routes = live_routes(run, parent.has_ended if parent else None) if run.exists else []
    should_stop = parent.can_close if parent else None
    serve(create_app(viewer, access, routes), listener, access, print_address, case, browser, should_stop)


def report_of(run: RunFolder) -> Callable[[], str] | None:
    """Return a function that renders the report of a run, or None if this is not a run."""
    if not run.exists and not run.folds_file.is_file():
        return None

    def render() -> str:
        with TemporaryDirectory() as folder:
            target = Path(folder) / "report.html"
            return read_text(render_report(run.path, target, baseline=own_baseline(run), has_links=True))

    return render
