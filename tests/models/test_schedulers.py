"""Samplers against those of `diffusers`, step by step, and the numbers that other languages are tested with."""

import json
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

from tinyweb.array.threefry import Generator
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Config
from tinyweb.models.schedulers import (
    DEFAULT_SPACING,
    SCHEDULERS,
    SchedulerConfig,
    default_scheduler,
    latent_noise,
    plan_steps,
)
from tinyweb.tensor import Tensor

PLANS = Path(__file__).with_name("fixtures") / "diffusion_plans.json"  # written by tools/diffusion_plans.py
JUDGES = {
    "ddim": (diffusers.DDIMScheduler, "scheduling_ddim"),
    "euler": (diffusers.EulerDiscreteScheduler, "scheduling_euler_discrete"),
    "euler-ancestral": (diffusers.EulerAncestralDiscreteScheduler, "scheduling_euler_ancestral_discrete"),
    "dpm++2m": (diffusers.DPMSolverMultistepScheduler, "scheduling_dpmsolver_multistep"),
    "lcm": (diffusers.LCMScheduler, "scheduling_lcm"),
}
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "clip_sample": False}
CONFIGS: dict[str, dict[str, Any]] = {
    "sd1": SD | {"steps_offset": 1, "set_alpha_to_one": False, "timestep_spacing": "leading"},
    "sd2-v": SD | {"steps_offset": 1, "set_alpha_to_one": False, "prediction_type": "v_prediction"},
    "turbo": SD | {"steps_offset": 1, "timestep_spacing": "trailing"},
    "linspace": SD | {"timestep_spacing": "linspace", "set_alpha_to_one": True},
    "zero-snr": SD | {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction"},
    "cosine": {"beta_schedule": "squaredcos_cap_v2", "clip_sample": False, "num_train_timesteps": 500},
    "linear": {"beta_schedule": "linear", "beta_end": 0.015, "clip_sample": False},
    "image": SD | {"prediction_type": "sample"},
    "karras": SD | {"use_karras_sigmas": True},
}


def denoiser(x: np.ndarray, timestep: float) -> np.ndarray:
    """What stands for a network: bounded, smooth, different at every timestep and element."""
    return np.sin(1.3 * x + timestep / 200 + np.linspace(0, 1, x.size).reshape(x.shape)) * 0.9


# diffusers' ancestral Euler does not know models that predict the picture itself
COMBINATIONS = [(s, n) for s in SCHEDULERS for n in CONFIGS if (s, n) != ("euler-ancestral", "image")]


@pytest.mark.parametrize("steps", [1, 7, 20])
@pytest.mark.parametrize(("scheduler", "name"), COMBINATIONS)
def test_like_diffusers(scheduler: str, name: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = CONFIGS[name]
    judge_class, module = JUDGES[scheduler]
    spacing = given.get("timestep_spacing", DEFAULT_SPACING.get(scheduler))
    if steps == 1 and spacing == "linspace" and scheduler not in ("dpm++2m", "lcm"):
        # diffusers' one step of "linspace" is the last, where nothing is left to do
        config = SchedulerConfig.from_json(Config(given, "scheduler_config.json"))
        assert plan_steps(config, scheduler, 1).steps[0].timestep == config.num_train_timesteps - 1
        return
    judge = judge_class.from_config(given)
    config = SchedulerConfig.from_json(Config({"_class_name": judge_class.__name__} | given, "scheduler_config.json"))
    for strength in (None, 0.6):
        if strength and int(steps * strength) < 1:
            continue
        compare(judge, module, config, scheduler, steps, strength, monkeypatch)


def compare(
    judge: Any, module: str, config: SchedulerConfig, scheduler: str, steps: int, strength: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # schedules that leave (almost) nothing of the image: the judge's float32 has few digits at s = 4096
    bound = 5e-4 if config.rescale_betas_zero_snr or "cap" in config.beta_schedule else 1e-4
    plan = plan_steps(config, scheduler, steps, strength)
    shape, taken = (2, 3), 0
    image = np.array([[0.5, -1, 2], [1.5, 0, -0.3]], np.float32) if strength else np.zeros(shape, np.float32)
    judge.set_timesteps(steps)
    first = steps - int(steps * strength) if strength else 0
    times = judge.timesteps[first:]
    if hasattr(judge, "set_begin_index"):
        judge.set_begin_index(first)
    assert [s.timestep for s in plan.steps] == pytest.approx(times.tolist(), abs=2e-3)

    def noise(*_: Any, **__: Any) -> torch.Tensor:
        return torch.from_numpy(latent_noise(5, shape, taken))

    monkeypatch.setattr(f"diffusers.schedulers.{module}.randn_tensor", noise)
    wanted = noise() * judge.init_noise_sigma
    if strength:
        wanted = judge.add_noise(torch.from_numpy(image), noise(), times[:1])
    x = np.float32(plan.image) * image + np.float32(plan.noise) * latent_noise(5, shape, 0)
    np.testing.assert_allclose(x, wanted, rtol=1e-4, atol=1e-4)
    previous = np.zeros_like(x)
    for taken, (step, t) in enumerate(zip(plan.steps, times, strict=True), 1):
        given = judge.scale_model_input(wanted, t)
        output = denoiser(given.numpy(), step.timestep).astype(np.float32)
        answer = judge.step(torch.from_numpy(output), t, wanted)
        wanted = answer.prev_sample
        output = denoiser(np.float32(step.input) * x, step.timestep).astype(np.float32)
        denoised = np.float32(step.denoise[0]) * x + np.float32(step.denoise[1]) * output
        parts = (x, denoised, previous, latent_noise(5, shape, taken))
        x = sum((np.float32(c) * p for c, p in zip(step.next, parts)), np.zeros_like(x))
        previous = denoised
        scale = max(1.0, float(wanted.abs().max()))
        np.testing.assert_allclose(x / scale, wanted / scale, atol=bound, err_msg=f"step {taken} of {scheduler}")


def test_noise_is_that_of_the_generator() -> None:
    """Latent noise is what `Tensor.randn` of the same seed gives, up to the rounding of float32."""
    seed, shape = (7 << 40) + 3, (4, 8, 8)
    for step in (0, 1):
        generator = Generator(seed)
        generator.set_state((seed, step))
        drawn = Tensor.randn(*shape, generator=generator, device="INTERPRETER").numpy()
        np.testing.assert_allclose(latent_noise(seed, shape, step), drawn, atol=2e-5)
    many = latent_noise(1, (4, 64, 64), 0)
    assert abs(many.mean()) < 0.03 and abs(many.std() - 1) < 0.03
    assert np.array_equal(latent_noise(2**64 + 1, (4,), 0), latent_noise(1, (4,), 0))


def test_fixtures_are_current() -> None:
    """The committed tables, which JavaScript is tested with, are what this code gives."""
    import diffusion_plans  # tools/diffusion_plans.py

    written, made = json.loads(PLANS.read_text()), diffusion_plans.tables()
    assert written["configs"] == made["configs"]
    for old, new in zip(written["plans"] + written["noise"], made["plans"] + made["noise"], strict=True):
        assert numbers(old) == pytest.approx(numbers(json.loads(json.dumps(new))), rel=1e-9, abs=1e-12)


def numbers(value: Any) -> list[float]:
    """All numbers of a JSON value, in order."""
    if isinstance(value, dict | list):
        return [n for v in (value.values() if isinstance(value, dict) else value) for n in numbers(v)]
    return [float(value)] if isinstance(value, int | float) else []


def test_refusals() -> None:
    config = SchedulerConfig()
    with pytest.raises(TinywebError, match="no scheduler 'heun': choose one of ddim, euler"):
        plan_steps(config, "heun", 20)
    with pytest.raises(TinywebError, match="51 steps are not possible with lcm: choose 1 to 50"):
        plan_steps(config, "lcm", 51)
    with pytest.raises(TinywebError, match=r"strength of 1\.5"):
        plan_steps(config, "ddim", 20, 1.5)
    for fields, kind, text in [
        ({"thresholding": True}, NotImplementedError, "'thresholding' 'True' is not supported"),
        ({"beta_schedule": "exotic"}, ModelFormatError, "'beta_schedule' must be one of scaled_linear"),
        ({"rescale_betas_zero_snr": True}, ModelFormatError, "leaves nothing of the image"),
    ]:
        with pytest.raises(kind, match=text):
            SchedulerConfig.from_json(Config(fields, "scheduler_config.json"))
    with pytest.raises(NotImplementedError, match="flow matching"):
        default_scheduler(Config({"_class_name": "FlowMatchEulerDiscreteScheduler"}, "scheduler_config.json"))
    assert default_scheduler(Config({"_class_name": "PNDMScheduler"}, "")) == "ddim"
