"""Test scans that are copies of training scans under other names, found by checksums of prepared images."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from graftseg.core.errors import UserError
from graftseg.core.names import nfc
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import find_store, image_checksum, open_store
from graftseg.inference.inputs import Input, Source
from graftseg.inference.predict import PlannedPrediction

MAX_NAMED = 5


def with_checksums(plan: PlannedPrediction) -> tuple[PlannedPrediction, dict[str, str]]:
    """Return a plan that computes checksums of prepared images, and the checksums by case, filled while it predicts."""
    found: dict[str, str] = {}

    def read(case: Source) -> Input:
        prepared = case.read()
        found[case.name] = case.sha256 or image_checksum(prepared.image.numpy())
        return prepared

    return replace(plan, cases=[replace(case, read=partial(read, case)) for case in plan.cases]), found


def training_checksums(networks: Iterable[RunFolder]) -> dict[str, str]:
    """Return the names of the training cases by the checksum of their image. Leave out runs without their store."""
    names: dict[str, str] = {}
    for network in networks:
        try:
            store, facts = open_store(find_store(network)), network.training_manifest()["store"]
        except (UserError, OSError):
            continue
        trained = {str(name) for key in ("labeled", "unlabeled") for name in facts.get(key, ())}
        names |= {case.sha256[case.image]: case.name for case in store.cases if case.name in trained}
    return names


def copies_warning(tested: Mapping[str, str], trained: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning if test scans are copies of training scans of other names.

    ``tested`` are checksums by name, and ``trained`` are names by checksum.
    """
    originals = {name: trained[checksum] for name, checksum in sorted(tested.items()) if checksum in trained}
    pairs = [f"{name} = {original}" for name, original in originals.items() if nfc(name) != nfc(original)]
    if pairs:
        listed = ", ".join(pairs[:MAX_NAMED]) + (", ..." if len(pairs) > MAX_NAMED else "")
        are = "is a copy of a training scan" if len(pairs) == 1 else "are copies of training scans"
        yield f"{len(pairs)} of {len(tested)} test scans {are} ({listed}), so the scores do not apply to new scans"
