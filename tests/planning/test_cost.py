"""Operations, bytes and seconds of a step, and the device that they are for."""

import pytest
import torch
from planning_fakes import CPU, facts, usual
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from graftseg.core.errors import Code
from graftseg.networks import NetworkSettings, build_network, parameter_count
from graftseg.planning import probe
from graftseg.planning.cost import ABSENT_GPU, SPEEDS, Speed, network_load, step_bytes, target_of
from graftseg.planning.length import adam_rate, first_stage_steps, round_down, teacher_decay
from graftseg.planning.plans import choose
from graftseg.planning.probe import seconds_per_step
from graftseg.recipes.baseline import baseline_of
from graftseg.recipes.recipe import changed
from user_errors import user_error

SMALL = NetworkSettings(name="unet-2d", width=4, levels=3)


def test_operations_are_those_of_a_real_pass() -> None:
    network, images = build_network(SMALL, 2, 3), torch.zeros(2, 2, 32, 48)
    counter = FlopCounterMode(display=False)
    with counter:
        network(images)
    load = network_load(SMALL, 2, 3)
    assert load.operations * 2 * 32 * 48 == pytest.approx(counter.get_total_flops())
    assert load.parameters == parameter_count(network)


def test_saved_bytes_grow_with_the_width_and_include_convolution_outputs() -> None:
    kept = []
    network = build_network(SMALL, 1, 2).eval()

    def count(module: nn.Module, _: object, output: torch.Tensor) -> None:
        kept.append(output.numel() * 4)

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    network(torch.zeros(1, 1, 16, 16))
    load = network_load(SMALL, 1, 2)
    assert 1 <= load.saved_bytes * 16 * 16 / sum(kept) < 4
    assert network_load(SMALL.model_copy(update={"width": 8}), 1, 2).saved_bytes == pytest.approx(
        2 * load.saved_bytes, rel=0.2
    )


def test_bytes_of_a_step_grow_with_patch_batch_and_classes() -> None:
    load = network_load(SMALL, 1, 2)
    usual_bytes = step_bytes(load, (64, 64), 4, 2)
    assert step_bytes(load, (64, 128), 4, 2) == pytest.approx(2 * usual_bytes, rel=0.1)
    assert step_bytes(load, (64, 64), 8, 2) == step_bytes(load, (64, 128), 4, 2)
    assert step_bytes(load, (64, 64), 4, 5) > usual_bytes


def test_speed() -> None:
    assert Speed(rate=100.0, fixed=0.5, source="").seconds(50.0) == 1.0
    assert SPEEDS["cuda"].seconds(1e12) < SPEEDS["cpu"].seconds(1e12)


def test_timing_a_step_keeps_the_random_state() -> None:
    plan = choose(facts(*usual((16, 16, 16))), CPU)
    recipe = changed(plan.recipe, ["network.width=2", "batches.labeled=2", "batches.unlabeled=2"])
    before = torch.get_rng_state()
    supervised = baseline_of(recipe)
    seconds = seconds_per_step([recipe, supervised], 1, 2, torch.device("cpu"))
    assert len(seconds) == 2 and all(0 < one < 30 for one in seconds)
    assert torch.equal(torch.get_rng_state(), before)


def test_first_step_counts_only_if_it_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first step above MAX_SECONDS is the result; a faster first step is only a warm-up."""
    seconds = [[9.0, 1.0, 2.0, 3.0], [7.0, 6.0, 5.0, 4.0]]
    measures = [times.__getitem__ for times in seconds]
    assert probe._shortest(measures, torch.device("cpu")) == [9.0, 7.0]
    monkeypatch.setattr(probe, "MAX_SECONDS", 10.0)
    # the second takes 11 s in two turns, so there is no third
    assert probe._shortest(measures, torch.device("cpu")) == [1.0, 5.0]


def test_recipes_take_turns() -> None:
    """A load that doubles the time of every other turn slows both recipes alike."""
    order: list[str] = []

    def measure(name: str, seconds: float) -> probe.Measure:
        def timed(step: int) -> float:
            order.append(name)
            return seconds * (1 + step % 2)

        return timed

    assert probe._shortest([measure("a", 0.5), measure("b", 0.25)], torch.device("cpu")) == [0.5, 0.25]
    assert "".join(order) == "ab" * (1 + probe.TIMED_STEPS)


def test_on_a_gpu_only_replayed_steps_are_timed() -> None:
    """Three steps compile kernels, the fourth is captured, the fifth is the first replay: none of them counts."""
    seconds = [60.0, 5.0, 5.0, 20.0, 0.5, 0.02, 0.01, 0.03]
    assert probe._shortest([seconds.__getitem__], torch.device("cuda")) == [0.01]


@pytest.mark.parametrize(("number", "rounded"), [(7.9, 7), (99.9, 99), (123.0, 120), (4567.8, 4500), (99999.0, 99000)])
def test_round_down(number: float, rounded: int) -> None:
    assert round_down(number) == rounded


@pytest.mark.parametrize(
    ("steps", "first"), [(1, 1), (400, 240), (1900, 1100), (8000, 4800), (12_000, 5000), (40_000, 12_000)]
)
def test_the_first_stage_is_six_tenths_of_few_steps_and_three_tenths_of_many(steps: int, first: int) -> None:
    assert first_stage_steps(steps) == first


@pytest.mark.parametrize(("steps", "rate"), [(1, 0.01), (400, 0.01), (1000, 0.004), (3000, 0.0013), (9000, 0.001)])
def test_short_stages_have_a_high_rate(steps: int, rate: float) -> None:
    assert adam_rate(steps) == rate


@pytest.mark.parametrize(("steps", "decay"), [(10, 0.8), (200, 0.9), (400, 0.95), (2000, 0.99), (30_000, 0.99)])
def test_the_teacher_of_a_short_stage_follows_faster(steps: int, decay: float) -> None:
    assert teacher_decay(steps) == decay


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    absent = target_of("cuda")
    assert (absent.kind, absent.memory, absent.present) == ("cuda", ABSENT_GPU, False)
    here = target_of("auto")
    assert (here.kind, here.present) == ("cpu", True) and here.memory > 0
    assert target_of("cpu:0") == target_of("cpu") == here
    for name, finding in (
        ("tpu", "unknown device; use auto, cpu, cuda or cuda:N"),
        ("cuda:x", "unknown device"),
        ("mps", "unknown device"),
        ("cuda:5", "this machine has 0 CUDA devices; use auto or cpu"),
    ):
        with user_error(Code.DEVICE_UNAVAILABLE, f"--device {name}", finding):
            target_of(name)
