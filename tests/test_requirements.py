"""The tested environment is locked with hashes, fits ``pyproject.toml``, and has known licenses."""

import re
import tomllib
from importlib.metadata import metadata, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from markdown_pages import DOCS, ROOT, load, tables

LICENSES = load(DOCS / "licenses.py")
ROWS = {
    name: (pinned, license_, used)
    for name, pinned, license_, used in tables(DOCS / "reference/licenses.md")["Licenses"]
}
NAMED = re.compile(r"MIT|BSD|Apache|MPL|Mozilla|PSF|Python Software Foundation|ISC|GPL|GNU")


def test_every_pin_has_hashes() -> None:
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    assert [path.stem for path in locks] == ["build", "cuda", "tested", "torch", "web"]
    names: list[str] = []
    for path in locks:
        comment, *entries = path.read_text().replace("\\\n", "").splitlines()
        assert comment.startswith("#")
        for entry in entries:
            pin, *hashes = entry.split()
            assert hashes and all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), pin
            assert re.fullmatch(r"[a-z0-9-]+==[\w.]+", pin), pin
            names.append(pin.split("==")[0])
    assert len(names) == len(set(names))


def test_the_locked_versions_fit_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["dev"]
    wanted = [Requirement(text) for text in wanted + project["build-system"]["requires"]]
    pins = LICENSES.pins()
    names = [canonicalize_name(requirement.name) for requirement in wanted]
    assert len(names) == len(set(names))
    failures = [str(one) for one, name in zip(wanted, names, strict=True) if pins.get(name, "") not in one.specifier]
    assert not failures


def test_the_page_of_licenses_lists_the_locked_versions() -> None:
    assert {name: pinned for name, (pinned, _, _) in ROWS.items()} == LICENSES.pins()
    cuda = tables(DOCS / "reference/licenses.md")["CUDA"]
    assert {name: pinned for name, pinned, _ in cuda} == LICENSES.pins(for_cuda=True)
    assert {name for name, _, license_ in cuda if license_ != LICENSES.SEE_PACKAGE} == LICENSES.CUDA_LICENSES.keys()


def test_every_runtime_dependency_has_a_known_license() -> None:
    used = {name for name in LICENSES.runtime_packages() if name in ROWS}
    assert (
        {"torch", "numpy", "nibabel", "safetensors"} <= used <= {name for name, row in ROWS.items() if row[2] == "yes"}
    )
    unknown = [name for name, (_, license_, _) in ROWS.items() if not NAMED.search(license_)]
    assert not unknown
    for name in used:
        if version(name).split("+")[0] == ROWS[name][0]:
            assert LICENSES.license_of(metadata(name)) == ROWS[name][1], name
