"""Annotation of the unlabeled scans of a run in the browser."""

from collections.abc import Callable
from pathlib import Path

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.annotation import AnnotationFolder
from graftseg.data.layouts import read_layout
from graftseg.data.store import find_store, open_store
from graftseg.reporting.viewer.annotation_routes import AnnotationRoutes
from graftseg.reporting.viewer.annotator import Annotator
from graftseg.reporting.viewer.collection import require_case
from graftseg.reporting.viewer.launch import remembered_address, require_front_end, serve
from graftseg.reporting.viewer.retraining import Retraining
from graftseg.reporting.viewer.server import Viewer, create_app
from graftseg.reporting.viewer.suggestions import Suggestions
from graftseg.reporting.viewer.view import report_of


def annotate(
    run: RunFolder,
    data: Path | None,
    device: torch.device,
    print_address: Callable[[str], None],
    *,
    case: str = "",
    port: int = 0,
    browser: bool = True,
) -> None:
    """Let the user correct the predictions of a run in the browser until Ctrl-C, the most useful scan first.

    ``data`` is the folder of data, by default the folder that the run was trained on.
    """
    require_front_end()
    root = data or data_folder(run)
    folder = AnnotationFolder(root)
    with folder.lock():
        annotator = make_annotator(run, root, folder, device)
        require_case(annotator.collection, case, root)
        retraining = Retraining(run, root, str(device), folder.path / "train.log", annotator.use_run)
        routes = AnnotationRoutes(annotator, retraining)
        viewer = Viewer(annotator.collection, annotator.reader, report=report_of(run))
        access, listener = remembered_address(folder.path / "server.json", port)
        app = create_app(viewer, access, routes.routes(), routes.session)
        annotator.prefetch()
        serve(app, listener, access, print_address, case, browser)


def make_annotator(run: RunFolder, root: Path, folder: AnnotationFolder, device: torch.device) -> Annotator:
    """Read the cases of a folder of data and rank its unlabeled scans."""
    dataset = read_layout(root)
    dataset.refuse_problems()
    cases = sorted((*dataset.of("unlabeled"), *dataset.of("labeled")), key=lambda case: case.name)
    return Annotator(dataset, folder, Suggestions(run, dataset, device), cases)


def data_folder(run: RunFolder) -> Path:
    """Return the folder of scans that a run was trained on. Label maps are saved in its subfolder ``labelsTr``."""
    trained = run if run.exists else run.fold(0)
    root = Path(open_store(find_store(trained)).root)
    if not (root / "imagesTr").is_dir():
        finding = f"its data folder {root} has no imagesTr"
        raise UserError(Code.FOLDER_MISSING, run.path, finding, "pass the folder of the scans as --data")
    return root
