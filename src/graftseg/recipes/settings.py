"""Settings of the training loop, of a stage, of checkpoint selection and of inference."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from graftseg.core.settings import MAX_COUNT, MAX_IMAGES, ClassNumber, Settings, Voxels, without_unused
from graftseg.core.types import Precision
from graftseg.ops.components import ComponentRule
from graftseg.ops.optimizers import Adam, OptimizerSettings, Sgd

PUBLIC_INTERVAL = 200
"""Number of steps between two scores of the student in the public code."""

ScoredSplit = Literal["validation", "test"]


class LoopSettings(Settings):
    """Settings of the training loop and its log.

    Apart from rounding, only ``precision`` and ``batch_statistics`` change the result.

    ``bf16`` is used if the device and the method support it. In ``float32``, convolutions use TF32 on GPUs that have
    it, which is PyTorch's default. ``compiled`` turns compiled networks on or off. ``captured`` turns CUDA graphs on or
    off. For these two settings, None means on if it saves time. A checkpoint is written every ``checkpoint_every``
    steps, and also if the last checkpoint is older than ``checkpoint_seconds``. Training images of the first step and
    of ``snapshots`` later steps per stage are saved for the report (0 saves none). With ``training_dice_every``, all
    training scans are scored at this interval for the figure ``dice-over-time``. The store must then have labels of
    unlabeled scans, which are read only for these scores. On several devices, batch norms use the statistics of the
    images of all devices (``sync``) or only of their own device (``local``).
    """

    precision: Precision = "float32"
    compiled: bool | None = None
    captured: bool | None = None
    log_every: int = Field(10, ge=1, le=MAX_COUNT)
    checkpoint_every: int = Field(1000, ge=1, le=MAX_COUNT)
    checkpoint_seconds: float = Field(60, gt=0, le=1e9)
    snapshots: int = Field(3, ge=0, le=10**4)
    tensorboard: bool = True
    training_dice_every: int | None = Field(None, ge=1, le=MAX_COUNT)
    batch_statistics: Literal["sync", "local"] = "sync"

    @model_serializer(mode="wrap")
    def _without_unused_settings(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unused(self, handler, "training_dice_every", "batch_statistics")


class StageSettings(Settings):
    """One stage of training: a method and its number of steps.

    ``settings`` are the settings of the method. ``optimizers`` are for modules other than the student, such as a
    discriminator. ``carry_optimizer`` continues with the momenta of the previous stage.

    ``check_teacher`` predicts the unlabeled scans before the stage and leaves out scans with implausible predictions.
    If more than a quarter is left out, or if fewer than two scans remain, the previous stage is extended once. If that
    does not help, or if a class changes too much during the stage, training continues without unlabeled scans.
    """

    method: str
    steps: int = Field(ge=1, le=MAX_COUNT)
    settings: dict[str, Any] = Field(default_factory=dict)
    optimizer: OptimizerSettings = Sgd()
    optimizers: dict[str, OptimizerSettings] = Field(default_factory=dict)
    carry_optimizer: bool = False
    check_teacher: bool = False

    def optimizer_of(self, name: str) -> Sgd | Adam:
        """Return the optimizer settings of a module."""
        return self.optimizers.get(name, self.optimizer)


class SelectionSettings(Settings):
    """Which checkpoint is reported, and on which cases it is selected.

    Protocol ``last`` reports the last checkpoint. ``val`` reports the best checkpoint on validation cases. ``paper``
    reports the best checkpoint on ``cases`` and scores an empty prediction as 0, as the public code does. ``oracle``
    also scores the test cases and saves the student with the best test score. With ``val`` and ``paper``, every stage
    ends with its best student, from which the next stage starts. Otherwise training does not use the scores.

    The student is scored at all steps that are multiples of ``every``, but not before step ``first``. Steps are counted
    over all stages. ``stride`` is the stride of the windows for these scores, by default that of ``inference``.
    ``every`` defaults to 200 if the protocol or the oracle needs scores. If ``every`` is set and the protocol is
    ``last``, validation cases are scored only for the report's curve.
    """

    protocol: Literal["last", "val", "paper"] = "last"
    cases: ScoredSplit = "validation"
    every: int | None = Field(None, ge=1, le=MAX_COUNT)
    first: int = Field(0, ge=0, le=MAX_COUNT)
    stride: tuple[Voxels, ...] | None = None
    oracle: bool = False

    @model_validator(mode="before")
    @classmethod
    def _interval(cls, values: Any) -> Any:
        """Set ``every`` to the interval of the public code if scores are needed and the recipe sets no interval."""
        if not isinstance(values, dict) or values.get("every") is not None:
            return values
        needed = values.get("protocol", "last") != "last" or values.get("oracle", False)
        return {**values, "every": PUBLIC_INTERVAL} if needed else values

    @property
    def selected_on(self) -> ScoredSplit | None:
        """The split on which the checkpoint is selected, or None if the last checkpoint is reported."""
        return {"last": None, "val": "validation", "paper": self.cases}[self.protocol]

    @property
    def reads_test_labels(self) -> bool:
        """Whether training reads labels of test cases."""
        return self.every is not None and (self.oracle or self.selected_on == "test")

    @property
    def needs_validation(self) -> bool:
        """Whether validation cases are required, either to select a checkpoint or for the curve of protocol ``last``.

        The curve does not require validation cases if ``cases`` is ``test`` or if ``oracle`` scores test cases.
        """
        for_curve = not self.reads_test_labels and self.cases == "validation"
        return self.every is not None and (self.selected_on == "validation" or for_curve)


class InferenceSettings(Settings):
    """Settings of the sliding window and of the decision from probabilities to labels."""

    window: Literal["gaussian", "uniform"] = Field(
        "gaussian", description="Weight of a voxel in its window: gaussian (highest in the center) or uniform."
    )
    stride: tuple[Voxels, ...] | None = Field(
        None, description="Voxels between the starts of neighboring windows, for each axis; null uses overlap."
    )
    overlap: float = Field(
        0.5, ge=0, lt=1, description="Overlap of neighboring windows as a fraction of the window, if stride is null."
    )
    decision: Literal["argmax", "threshold"] = Field(
        "argmax", description="argmax: the most probable class. threshold (two classes only): foreground above 0.5."
    )
    largest_component: ComponentRule = Field(
        False, description="Keep only the largest connected component of each class, or of the listed classes."
    )
    keep_components: dict[ClassNumber, Annotated[int, Field(ge=1, le=10**6)]] = Field(
        {}, description="Number of largest connected components to keep, by class, such as {1: 2} for two kidneys."
    )
    min_component_ml: dict[ClassNumber, Annotated[float, Field(gt=0, le=1e6)]] = Field(
        {}, description="Volume in mL below which a connected component is removed, by class."
    )
    flips: bool = Field(
        False,
        description="Average over flips of the window: along all axes, or with warp along the axes that it mirrors.",
    )
    windows_per_forward: int = Field(4, ge=1, le=MAX_IMAGES, description="Windows or slices per forward pass.")
    precision: Literal["auto", "bf16", "float32"] = Field(
        "auto", description="Precision of predict: auto and bf16 use bfloat16 if the device has it. Scores use float32."
    )

    @model_validator(mode="after")
    def _one_rule_per_class(self) -> "InferenceSettings":
        rule = self.largest_component
        if twice := [value for value in self.keep_components if rule is True or (rule and value in rule)]:
            raise ValueError(f"class {twice[0]} is in keep_components, so largest_component must not include it")
        return self

    @model_serializer(mode="wrap")
    def _without_unused_filters(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unused(self, handler, "keep_components", "min_component_ml", "precision")

    @property
    def filtered_classes(self) -> tuple[int, ...]:
        """The classes of which components are removed by ``keep_components`` or ``min_component_ml``."""
        return tuple(sorted({*self.keep_components, *self.min_component_ml}))

    def uncleaned(self) -> "InferenceSettings":
        """Return the settings with all components kept."""
        off: dict[str, Any] = {"largest_component": False, "keep_components": {}, "min_component_ml": {}}
        return self.model_copy(update=off)
