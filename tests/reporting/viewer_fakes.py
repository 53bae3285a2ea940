"""A tiny tested run, and the server of a viewer without a network."""

from pathlib import Path

from starlette.testclient import TestClient
from starlette.types import ASGIApp
from tiny import tiny_recipe, write_scans

import graftseg
from graftseg.reporting.viewer.access import Access

ACCESS = Access(8000, "t" * 32)


def make_tested_run(folder: Path, dimensions: int) -> Path:
    """Train and test a tiny recipe on phantoms in ``folder/scans``. Return the run."""
    write_scans(folder / "scans", dimensions)
    run = folder / "run"
    graftseg.train(tiny_recipe(dimensions), folder / "scans", run, device="cpu")
    graftseg.predict(run, folder / "scans" / "imagesTs", run / "predictions", uncertainty=True, device="cpu")
    graftseg.evaluate(run / "predictions", folder / "scans" / "labelsTs")
    return run


def client_of(app: ASGIApp, *, token: bool = True) -> TestClient:
    """Return a browser of the viewer, with the cookie unless ``token`` is false."""
    client = TestClient(app, base_url="http://127.0.0.1:8000", headers={"x-graftseg": "1"})
    if token:
        client.cookies.set(ACCESS.cookie, ACCESS.token)
    return client
