"""A run and its data -> the order in which unlabeled scans are worth annotating."""

from pathlib import Path

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.progress import track
from graftseg.core.run_folder import RunFolder
from graftseg.data.origin import trained_on
from graftseg.inference.ranking.cases import Candidate, candidates_in
from graftseg.inference.ranking.observe import Observation, observe
from graftseg.inference.ranking.rank import Ranking, check_target, rank_cases, unlearned
from graftseg.inference.trained import Shipped, shipped_network


def rank_run(run: RunFolder, data: Path | None, out: Path | None, device: torch.device) -> Ranking:
    """Look at every scan once; one that cannot be read is named at the end and does not stop the others."""
    if out is not None:
        check_target(out)
    network = shipped_network(run, device)
    cases = candidates_in(data or trained_on(run), network.recipe)
    labeled, broken = _observed(network, cases.labeled, "Looking at labeled scans")
    if not labeled:
        raise broken[0]
    unlabeled, failures = _observed(network, cases.unlabeled, "Looking at unlabeled scans")
    if not unlabeled:
        raise failures[0]
    ranking = Ranking(
        rank_cases(unlabeled, labeled, network.classes),
        (*broken, *failures),
        unlearned(unlabeled, labeled, network.classes),
    )
    if out is not None:
        ranking.write_csv(out)
    return ranking


def _observed(
    network: Shipped, cases: tuple[Candidate, ...], description: str
) -> tuple[list[Observation], list[UserError]]:
    observed, failures = [], []
    for case in track(cases, description, len(cases)):
        try:
            observed.append(observe(network, case.name, case.read()))
        except UserError as error:
            failures.append(error)
        except (torch.OutOfMemoryError, MemoryError):
            failures.append(
                UserError(
                    Code.OUT_OF_MEMORY, case.name, "does not fit into memory", "use --device cpu or a larger machine"
                )
            )
    return observed, failures
