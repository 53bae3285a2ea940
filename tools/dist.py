"""Build the sdist and the wheel twice, compare the bytes, and write them to ``dist/``: ``make dist``."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = "1577836800"  # the time of all files in the archives: 2020-01-01


def build(folder: Path) -> dict[str, bytes]:
    """Build both archives from a copy of the tracked files and return their bytes by name."""
    source, out = folder / "source", folder / "dist"
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, cwd=ROOT, capture_output=True)  # noqa: S607
    for name in filter(None, listed.stdout.decode().split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    settings = {"SOURCE_DATE_EPOCH": EPOCH, "GRAFTSEG_WEB": "required"}
    subprocess.run(command, check=True, cwd=source, env=os.environ | settings)  # noqa: S603
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def main() -> None:
    """Write the archives, or fail if two builds differ."""
    builds = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            builds.append(build(Path(folder)))
    first, second = builds
    differing = [name for name in first | second if first.get(name) != second.get(name)]
    if differing:
        sys.exit(f"two builds differ: {', '.join(differing)}")
    for name, content in first.items():
        (ROOT / "dist").mkdir(exist_ok=True)
        (ROOT / "dist" / name).write_bytes(content)


if __name__ == "__main__":
    main()
