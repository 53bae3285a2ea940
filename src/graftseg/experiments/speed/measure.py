"""Measure this package's step and the usual step in alternating rounds. Results are medians, printed as a table."""

from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from graftseg.core.devices import devices
from graftseg.core.errors import Code, UserError
from graftseg.core.software import versions
from graftseg.data.store import open_store
from graftseg.experiments.speed import package_step, usual
from graftseg.experiments.speed.instruments import PHASES, PhaseSeconds, peak_memory
from graftseg.experiments.speed.subject import Subject, self_training_stage, subject_of, synthetic_store
from graftseg.experiments.speed.usual import WORKERS, Files, import_h5py, usual_batches
from graftseg.methods import METHODS
from graftseg.recipes.recipe import Recipe
from graftseg.training.step import effective_precision

# number of steps between two reads of the loss, as in a real run (on a CPU, reading costs no time)
READ_EVERY = {"cpu": 1, "cuda": 10}
WARM_UP = {"cpu": 2, "cuda": 20}  # untimed steps at the start of a round
# the usual step needs fewer warm-up steps, because it is neither compiled nor captured
USUAL_WARM_UP = {"cpu": 2, "cuda": 4}
MAX_SPREAD = 0.1  # a warning is printed if the ratios of two rounds differ by more than this fraction


@dataclass(frozen=True)
class Plan:
    """The size of a measurement: timed steps of each implementation in alternating rounds, each after warm-up steps."""

    steps: int = 30
    rounds: int = 3
    usual: bool = True
    workers: int = WORKERS
    persistent_workers: bool = False

    @property
    def steps_a_round(self) -> int:
        """The number of timed complete steps of one round, rounded up."""
        return ceil(self.steps / self.rounds)

    @property
    def phase_steps_a_round(self) -> int:
        """The number of further steps of one round, which are timed phase by phase."""
        return max(1, self.steps_a_round // 2)


@dataclass
class Times:
    """Measurements of one implementation by round: seconds of a step, seconds of its phases, and peak bytes."""

    steps: list[float] = field(default_factory=list)
    phases: list[PhaseSeconds] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)

    @property
    def step_ms(self) -> float:
        """The median time of a step in milliseconds."""
        return 1000 * median(self.steps)

    @property
    def phases_ms(self) -> dict[str, float]:
        """The median time of each phase in milliseconds."""
        return {name: 1000 * median(seconds[name] for seconds in self.phases) for name in self.phases[0]}

    @property
    def peak_mib(self) -> float:
        """The median peak memory in MiB. The first round is higher, because it also loads libraries."""
        return median(self.peaks) / 2**20

    def to_json(self) -> dict[str, Any]:
        """Return all measurements, rounded to the precision of the clock."""
        return {
            "step_ms": round(self.step_ms, 3),
            "steps_per_second": round(1000 / self.step_ms, 3),
            "phases_ms": {name: round(ms, 3) for name, ms in self.phases_ms.items()},
            "peak_mib": round(self.peak_mib, 1),
            "step_ms_by_round": [round(1000 * seconds, 3) for seconds in self.steps],
        }


@dataclass(frozen=True)
class Measurement:
    """The times of both implementations. ``facts`` describes recipe, data, device and settings."""

    facts: dict[str, Any]
    graftseg: Times
    usual: Times | None

    @property
    def ratio(self) -> float | None:
        """The time of a usual step divided by the time of this package's step."""
        return None if self.usual is None else self.usual.step_ms / self.graftseg.step_ms

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file written by ``--json``."""
        return {
            **self.facts,
            "graftseg": self.graftseg.to_json(),
            "usual": None if self.usual is None else self.usual.to_json(),
            "ratio": None if self.ratio is None else round(self.ratio, 3),
        }


def measure(recipe: Recipe, data: Path | None, device: torch.device, plan: Plan) -> Measurement:
    """Time the self-training step of a recipe on a prepared store, or on phantoms if ``data`` is None."""
    self_training_stage(recipe)  # raises if the recipe cannot be measured
    if plan.usual:
        import_h5py()  # raises if h5py is not installed
    with TemporaryDirectory(prefix="graftseg-bench-") as name:
        folder = Path(name)
        store = synthetic_store(recipe, folder) if data is None else open_store(data)
        subject = subject_of(recipe, store, device)
        try:
            return _measure(subject, plan, folder, "phantoms" if data is None else str(data))
        except (torch.OutOfMemoryError, MemoryError):
            remedy = "lower batches.labeled, batches.unlabeled, batches.patch or network.width with --set"
            raise UserError(Code.OUT_OF_MEMORY, device.type, "out of memory", remedy) from None


def _measure(subject: Subject, plan: Plan, folder: Path, data: str) -> Measurement:
    files = Files(subject, folder / "h5") if plan.usual else None
    package_times, usual_times = Times(), Times()
    for index in range(plan.rounds):
        _run_package(package_times, subject, plan, folder / f"run-{index}")
        if files is not None:
            _run_usual(usual_times, subject, plan, files)
    return Measurement(_facts(subject, plan, data), package_times, usual_times if plan.usual else None)


def _run_package(times: Times, subject: Subject, plan: Plan, folder: Path) -> None:
    every, warm_up = READ_EVERY[subject.device.type], WARM_UP[subject.device.type]
    with peak_memory(subject.device) as peak:
        batches = subject.batches()
        seconds, method = package_step.time_whole(subject, batches, folder, warm_up, plan.steps_a_round, every)
    times.steps.append(seconds)
    times.peaks.append(peak.value)
    times.phases.append(
        package_step.time_phases(subject, batches, method, max(1, warm_up // 4), plan.phase_steps_a_round)
    )


def _run_usual(times: Times, subject: Subject, plan: Plan, files: Files) -> None:
    warm_up, epoch = USUAL_WARM_UP[subject.device.type], len(files.streams(subject.recipe.batches))
    steps, phase_steps = (whole_epochs(count, epoch) for count in (plan.steps_a_round, plan.phase_steps_a_round))
    with usual_batches(subject, files, workers=plan.workers, persistent_workers=plan.persistent_workers) as batches:
        with peak_memory(subject.device) as peak:
            trainer = usual.UsualTrainer(subject)
            times.steps.append(usual.time_whole(trainer, batches, warm_up, steps))
        times.peaks.append(peak.value)
        times.phases.append(usual.time_phases(trainer, batches, phase_steps))


def whole_epochs(steps: int, epoch: int) -> int:
    """Round steps up to full epochs, because an epoch starts slowly. Do not round to more than twice the steps."""
    return epoch * ceil(steps / epoch) if epoch <= 2 * steps else steps


def _facts(subject: Subject, plan: Plan, data: str) -> dict[str, Any]:
    recipe, device = subject.recipe, subject.device
    named = [name for name in devices() if name.startswith(device.type)]
    return {
        "recipe": recipe.name,
        "data": data,
        "device": named[device.index or 0],
        "versions": versions(),
        "patch": list(recipe.batches.patch),
        "batch": {"labeled": recipe.batches.labeled, "unlabeled": recipe.batches.unlabeled},
        "precision": effective_precision(recipe.loop.precision, METHODS[subject.stage.method], device),
        "compiled": subject.mode.compiled,
        "captured": subject.mode.captured,
        "rounds": plan.rounds,
        "steps_a_round": plan.steps_a_round,
        "warm_up": WARM_UP[device.type],
        "usual_warm_up": USUAL_WARM_UP[device.type],
        "workers": plan.workers,
        "persistent_workers": plan.persistent_workers,
    }


def measurement_table(result: Measurement) -> str:
    """Return a table with the times of the phases and of a step, the memory, and the ratio of both implementations."""
    facts = result.facts
    size, batch = "x".join(map(str, facts["patch"])), facts["batch"]
    both = [result.graftseg] if result.usual is None else [result.graftseg, result.usual]
    usual_warm_up = f" ({facts['usual_warm_up']} for the usual way)" if result.usual else ""
    heads = ["graftseg", "usual way"][: len(both)]
    settings = [facts["precision"], *(name for name in ("compiled", "captured") if facts[name]), facts["data"]]
    lines = [
        f"{facts['recipe']} on {facts['device']}: patches of {size}, {batch['labeled']} labeled and "
        f"{batch['unlabeled']} unlabeled per step, {', '.join(settings)}",
        "",
        _row("ms per step", heads),
        *(_row(name, [f"{times.phases_ms[name]:.2f}" for times in both]) for name in PHASES),
        _row("sum of the phases", [f"{sum(times.phases_ms.values()):.2f}" for times in both]),
        _row("whole step", [f"{times.step_ms:.2f}" for times in both]),
        _row("steps per second", [f"{1000 / times.step_ms:.2f}" for times in both]),
        _row("peak memory, MiB", [f"{times.peak_mib:.0f}" for times in both]),
        "",
        f"Medians over {facts['rounds']} round{'s' * (facts['rounds'] > 1)} of {facts['steps_a_round']} timed steps "
        f"({facts['rounds'] * facts['steps_a_round']} in total) after {facts['warm_up']} warm-up steps{usual_warm_up}.",
    ]
    if result.usual is not None:
        ratios = [usual / ours for ours, usual in zip(result.graftseg.steps, result.usual.steps, strict=True)]
        low, high = min(ratios), max(ratios)
        lines.append(f"The usual way takes {result.ratio:.2f} times as long ({low:.2f} to {high:.2f} by round).")
        if high > (1 + MAX_SPREAD) * low:
            lines.append("The ratios of the rounds differ by more than 10 %: close other programs and measure again.")
    return "\n".join(lines)


def _row(name: str, cells: list[str]) -> str:
    return f"{name:<20}" + "".join(f"{cell:>12}" for cell in cells)
