"""Settings of the loop, a stage, checkpoint selection and inference."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from graftseg.core.settings import MOST_IMAGES, MOST_STEPS, Settings, Voxels
from graftseg.core.types import Precision
from graftseg.ops.components import ComponentRule
from graftseg.ops.optimizers import Adam, OptimizerSettings, Sgd

USUAL = 200
"""Steps between two scorings in public code."""

Listed = Literal["validation", "test"]


class LoopSettings(Settings):
    """How the loop runs and what it leaves behind; nothing here but ``precision`` changes the result.

    ``bf16`` takes effect where the device has it and the method bears it; convolutions in ``float32`` use TF32 on a GPU
    that has it, as PyTorch does by itself. ``compiled`` networks and ``captured`` steps (a CUDA graph) are chosen where
    they pay off unless they are set. A checkpoint is written every ``checkpoint_every`` steps and whenever
    ``checkpoint_seconds`` have passed.
    """

    precision: Precision = "float32"
    compiled: bool | None = None
    captured: bool | None = None
    log_every: int = Field(10, ge=1, le=MOST_STEPS)
    checkpoint_every: int = Field(1000, ge=1, le=MOST_STEPS)
    checkpoint_seconds: float = Field(60, gt=0, le=1e9)
    snapshots: int = Field(3, ge=0, le=10**4)
    tensorboard: bool = True


class StageSettings(Settings):
    """One stage of a training: a method, for so many steps.

    ``settings`` are the method's own. ``optimizers`` are for sub-modules that the method moves besides the student.
    ``carry_optimizer`` goes on with the momenta of the stage before.
    """

    method: str
    steps: int = Field(ge=1, le=MOST_STEPS)
    settings: dict[str, Any] = Field(default_factory=dict)
    optimizer: OptimizerSettings = Sgd()
    optimizers: dict[str, OptimizerSettings] = Field(default_factory=dict)
    carry_optimizer: bool = False

    def optimizer_of(self, name: str) -> Sgd | Adam:
        """Settings of the optimiser of a sub-module."""
        return self.optimizers.get(name, self.optimizer)


class SelectionSettings(Settings):
    """Which checkpoint is reported, and on which cases that is decided.

    ``last`` selects nothing. ``val`` takes the best on the validation cases. ``paper`` takes the best on the cases
    named by ``cases``, as the public code does, and counts an empty prediction as 0. Students are scored every
    ``every`` steps of the whole training, from step ``first`` on, in windows ``stride`` apart. ``oracle`` scores the
    test cases too and keeps the best on them for the record; nothing of it flows back into training.

    Without ``every`` it is 200 where the protocol or the oracle need scores, and otherwise nothing is scored. With it,
    ``last`` scores the validation cases as well, for the curve alone.
    """

    protocol: Literal["last", "val", "paper"] = "last"
    cases: Listed = "validation"
    every: int | None = Field(None, ge=1, le=MOST_STEPS)
    first: int = Field(0, ge=0, le=MOST_STEPS)
    stride: tuple[Voxels, ...] | None = None
    oracle: bool = False

    @model_validator(mode="before")
    @classmethod
    def _interval(cls, given: Any) -> Any:
        """Scores that are needed are made as often as in public code, unless the recipe says how often."""
        if not isinstance(given, dict) or given.get("every") is not None:
            return given
        needed = given.get("protocol", "last") != "last" or given.get("oracle", False)
        return {**given, "every": USUAL} if needed else given

    @property
    def decides(self) -> Listed | None:
        """The cases whose score chooses the checkpoint, or None where none is chosen."""
        return {"last": None, "val": "validation", "paper": self.cases}[self.protocol]

    @property
    def opens_test(self) -> bool:
        """Whether labels of test cases are opened during training."""
        return self.every is not None and (self.oracle or self.decides == "test")

    @property
    def needs_validation(self) -> bool:
        """Whether it makes no sense without validation cases.

        Where ``cases`` is ``test`` a protocol that does not ask for them scores nothing, as the recipe may be used
        under another one.
        """
        idle = not self.opens_test and self.cases == "validation"
        return self.every is not None and (self.decides == "validation" or idle)


class InferenceSettings(Settings):
    """How probabilities of overlapping windows become one label map."""

    window: Annotated[
        Literal["gaussian", "uniform"],
        Field(description="Weight of a voxel inside its window: highest in the middle, or the same everywhere."),
    ] = "gaussian"
    stride: Annotated[
        tuple[Voxels, ...] | None,
        Field(description="Voxels from one window to the next, for each axis of the patch; none: by overlap."),
    ] = None
    overlap: Annotated[
        float,
        Field(ge=0, lt=1, description="Part of a window that the next one covers again, without a stride."),
    ] = 0.5
    decision: Annotated[
        Literal["argmax", "threshold"],
        Field(description="The most probable class, or (two classes only) foreground where above one half."),
    ] = "argmax"
    largest_component: Annotated[
        ComponentRule,
        Field(description="Keep only the largest connected component of each class, or of those of these numbers."),
    ] = False
    flips: Annotated[bool, Field(description="Average over the flips of a window along every subset of its axes.")] = (
        False
    )
    windows_per_forward: Annotated[
        int, Field(ge=1, le=MOST_IMAGES, description="Windows, or slices, that pass through the network together.")
    ] = 4
