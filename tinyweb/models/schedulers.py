"""Samplers of diffusion models: DDIM, Euler, Euler ancestral, DPM++ 2M and LCM, as tables of numbers.

    plan = plan_steps(SchedulerConfig(), "euler", steps=20)
    x = plan.noise * latent_noise(seed, shape, 0)
    for k, step in enumerate(plan.steps, 1): …

Every step of these samplers is linear in the latents x, the model's output, the denoised latents of the step before and
fresh noise. So all that tells them apart is a handful of coefficients for each step, which depend on nothing but the
noise schedule and the number of steps:

    output   = model(step.input · x, step.timestep)
    denoised = denoise[0] · x + denoise[1] · output
    x        = next[0] · x + next[1] · denoised + next[2] · previous + next[3] · noise

What is notable:
- The schedule is that of the model's training: ᾱ(t), the share of the image's variance left after t steps of noise.
  With α = √ᾱ and σ = √(1 − ᾱ), noisy latents are α · image + σ · noise. Euler's methods work on latents divided by
  α, whose noise has the scale s = σ / α.
- Coefficients are float64: computed anywhere they agree to about 1e-12, and round to the same float32.
- Noise is a function of (seed, number of the step, element): no state, the same on every device and in every language.

Sources: DDIM, Song et al. 2021; Euler and Karras' spacing, Karras et al. 2022; Euler ancestral, Crowson's k-diffusion
2022; DPM-Solver++ (2M), Lu et al. 2022; LCM, Luo et al. 2023; spacings and zero terminal SNR, Lin et al. 2024. Where
they leave room, fields mean what they mean in a `scheduler_config.json` of diffusers.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyweb.array.threefry import PARITY, ROTATIONS
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Config

SCHEDULERS = ("ddim", "euler", "euler-ancestral", "dpm++2m", "lcm")
SPACINGS = ("leading", "trailing", "linspace")
DEFAULT_SPACING = {"ddim": "leading", "euler": "linspace", "euler-ancestral": "linspace", "dpm++2m": "linspace"}
PREDICTIONS = ("epsilon", "v_prediction", "sample")
BETA_SCHEDULES = ("scaled_linear", "linear", "squaredcos_cap_v2")
CLASSES = {
    "DDIMScheduler": "ddim", "PNDMScheduler": "ddim", "EulerDiscreteScheduler": "euler",
    "EulerAncestralDiscreteScheduler": "euler-ancestral", "DPMSolverMultistepScheduler": "dpm++2m",
    "UniPCMultistepScheduler": "dpm++2m", "LCMScheduler": "lcm",
}  # fmt: skip
"""What a model's own scheduler becomes: itself, or where that is not known here its nearest relative."""
KARRAS_RHO = 7.0
LCM_SIGMA_DATA = 0.5
NEARLY_ZERO = 2.0**-24  # ᾱ that stands for zero where s = σ / α has to be finite
# what a config may ask for and is not built: field → the only values that are
_UNBUILT: dict[str, tuple[Any, ...]] = {
    "trained_betas": (), "thresholding": (False,), "use_exponential_sigmas": (False,),
    "use_beta_sigmas": (False,), "use_lu_lambdas": (False,), "use_flow_sigmas": (False,),
    "interpolation_type": ("linear",), "timestep_type": ("discrete",), "final_sigmas_type": ("zero",),
    "sigma_min": (), "sigma_max": (),
}  # fmt: skip

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SchedulerConfig:
    """The noise schedule a model was trained with, and how steps are spaced on it.

    `timestep_spacing` None: as each sampler does by itself. The last two belong to LCM.
    """

    num_train_timesteps: int = 1000
    beta_start: float = 0.00085
    beta_end: float = 0.012
    beta_schedule: str = "scaled_linear"
    prediction_type: str = "epsilon"
    timestep_spacing: str | None = None
    steps_offset: int = 0
    set_alpha_to_one: bool = True
    rescale_betas_zero_snr: bool = False
    use_karras_sigmas: bool = False
    original_inference_steps: int = 50
    timestep_scaling: float = 10.0

    @classmethod
    def from_json(cls, c: Config) -> Self:
        """Checks a scheduler_config.json. `clip_sample` is for pixels: latents are never clipped, whatever it says.

        ModelFormatError names the field that is wrong, NotImplementedError one that asks for what is not built.
        """
        for field, built in _UNBUILT.items():
            value = c.values.get(field)
            if value is not None and value not in built:
                raise NotImplementedError(f"{c.where}: {field!r} {str(value)[:40]!r} is not supported by the samplers")
        lcm = c.values.get("_class_name") == "LCMScheduler"  # the one whose defaults are Stable Diffusion's
        usual = cls() if lcm else cls(beta_start=1e-4, beta_end=0.02, beta_schedule="linear")
        steps = c.integer("num_train_timesteps", 2, 100_000, 1000)
        spacing = None if c.values.get("timestep_spacing") is None else _word(c, "timestep_spacing", SPACINGS, "")
        read = cls(
            num_train_timesteps=steps,
            beta_start=c.number("beta_start", 1e-9, 0.999, usual.beta_start),
            beta_end=c.number("beta_end", 1e-9, 0.999, usual.beta_end),
            beta_schedule=_word(c, "beta_schedule", BETA_SCHEDULES, usual.beta_schedule),
            prediction_type=_word(c, "prediction_type", PREDICTIONS, "epsilon"),
            timestep_spacing=None if lcm else spacing,  # LCM has a spacing of its own; what is written there is unused
            steps_offset=c.integer("steps_offset", 0, steps - 1, 0),
            set_alpha_to_one=c.flag("set_alpha_to_one", True),
            rescale_betas_zero_snr=c.flag("rescale_betas_zero_snr", False),
            use_karras_sigmas=c.flag("use_karras_sigmas", False),
            original_inference_steps=c.integer("original_inference_steps", 1, steps, min(50, steps)),
            timestep_scaling=c.number("timestep_scaling", 0, 1e6, 10.0),
        )
        if read.rescale_betas_zero_snr and read.prediction_type == "epsilon":
            raise ModelFormatError(
                f"{c.where}: 'rescale_betas_zero_snr' leaves nothing of the image in the noisiest step, "
                "from which a model that predicts the noise ('epsilon') cannot go on"
            )
        return read

    def to_json(self) -> dict[str, Any]:
        """All fields, as a bundle's manifest has them."""
        return asdict(self)

    def alphas(self) -> Array:
        """ᾱ for every step of training: the product of 1 − β up to it."""
        count = self.num_train_timesteps
        if self.beta_schedule == "linear":
            betas = np.linspace(self.beta_start, self.beta_end, count)
        elif self.beta_schedule == "scaled_linear":
            betas = np.linspace(math.sqrt(self.beta_start), math.sqrt(self.beta_end), count) ** 2
        else:
            left = np.cos((np.arange(count + 1) / count + 0.008) / 1.008 * (math.pi / 2)) ** 2
            betas = np.minimum(1 - left[1:] / left[:-1], 0.999)
        alphas: Array = np.cumprod(1 - betas, dtype=np.float64)
        if self.rescale_betas_zero_snr:  # Lin et al., algorithm 1: √ᾱ ends at 0 and begins as it did
            roots = np.sqrt(alphas)
            alphas = ((roots - roots[-1]) * (roots[0] / (roots[0] - roots[-1]))) ** 2
        return alphas


def _word(c: Config, field: str, known: tuple[str, ...], default: str) -> str:
    value = c.word(field, default)
    if value not in known:
        raise ModelFormatError(f"{c.where}: {field!r} must be one of {', '.join(known)}, found {value[:40]!r}")
    return value


def default_scheduler(c: Config) -> str:
    """The sampler that a scheduler_config.json names; NotImplementedError for one of another kind of model."""
    name = c.word("_class_name", "DDIMScheduler")
    if name.startswith("FlowMatch"):
        raise NotImplementedError(f"{c.where}: {name[:60]} belongs to flow matching models, which are not supported")
    return CLASSES.get(name, "dpm++2m")


@dataclass(frozen=True)
class Step:
    """One evaluation of the model: see the module's text. `timestep` may lie between two whole ones."""

    timestep: float
    input: float
    denoise: tuple[float, float]
    next: tuple[float, float, float, float]


@dataclass(frozen=True)
class SamplingPlan:
    """Sampling begins with image · (latents of a start image) + noise · (standard normal noise)."""

    image: float
    noise: float
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """As tests in other languages read it."""
        return asdict(self)


def plan_steps(
    config: SchedulerConfig, scheduler: str, steps: int, strength: float | None = None
) -> SamplingPlan:  # fmt: skip
    """The plan of `steps` steps with one of SCHEDULERS.

    `strength` None: from noise alone. Otherwise from an image: of the steps only the last ⌊steps · strength⌋ (at least
    one) are done, and the image gets the noise of the first of them. TinywebError for what cannot be.
    """
    if scheduler not in SCHEDULERS:
        raise TinywebError(f"There is no scheduler {scheduler!r}: choose one of {', '.join(SCHEDULERS)}.")
    most = config.original_inference_steps if scheduler == "lcm" else config.num_train_timesteps
    if not 1 <= steps <= most:
        raise TinywebError(f"{steps} steps are not possible with {scheduler}: choose 1 to {most}.")
    if strength is not None and not 0 < strength <= 1:
        raise TinywebError(f"A strength of {strength:g} is not possible: choose more than 0, at most 1.")
    first = 0 if strength is None else steps - max(min(int(steps * strength), steps), 1)
    make = {"ddim": _ddim, "dpm++2m": _dpm, "lcm": _lcm}.get(scheduler)
    if make:
        return make(config, steps, first, strength is not None)
    return _euler(config, steps, first, strength is not None, scheduler == "euler-ancestral")


def _timesteps(config: SchedulerConfig, scheduler: str, steps: int) -> list[float]:
    """Steps of training to evaluate the model at, the noisiest first; halves are rounded to even."""
    count = config.num_train_timesteps
    spacing = config.timestep_spacing or DEFAULT_SPACING[scheduler]
    if spacing == "trailing":
        return [float(round(count - i * (count / steps)) - 1) for i in range(steps)]
    more = scheduler == "dpm++2m"  # its points are those between: one more, of which the last is left out
    if spacing == "leading":
        ratio = count // (steps + more)
        return [float(min(i * ratio + config.steps_offset, count - 1)) for i in range(steps - 1 + more, more - 1, -1)]
    gaps = steps - 1 + more
    # one step alone begins where there is nothing but noise
    points = [i * (count - 1) / gaps for i in range(gaps, more - 1, -1)] if gaps else [count - 1.0]
    return points if scheduler.startswith("euler") else [float(round(p)) for p in points]


def _karras(low: float, high: float, scales: Array, steps: int) -> tuple[list[float], Array]:
    """Timesteps and noise scales, from `high` down to `low`, evenly spaced in their seventh roots.

    A timestep is where the logarithm of the schedule's noise scales (`scales`, rising) reaches that of the scale.
    """
    a, b = high ** (1 / KARRAS_RHO), low ** (1 / KARRAS_RHO)
    chosen = (a + (b - a) * (np.arange(steps) / max(steps - 1, 1))) ** KARRAS_RHO
    return [float(t) for t in np.interp(np.log(chosen), np.log(scales), np.arange(len(scales)))], chosen


def _denoise(config: SchedulerConfig, alpha: float, sigma: float) -> tuple[float, float]:
    """Coefficients of x and of the model's output in the denoised latents, for x = α · image + σ · noise."""
    if config.prediction_type == "epsilon":
        return 1 / alpha, -sigma / alpha
    return (alpha, -sigma) if config.prediction_type == "v_prediction" else (0.0, 1.0)


def _ddim(config: SchedulerConfig, steps: int, first: int, image: bool) -> SamplingPlan:
    """The noise in x, (x − α · denoised) / σ, is kept; its share shrinks to that of the next step."""
    alphas = config.alphas()
    last = 1.0 if config.set_alpha_to_one else alphas[0]
    gap = config.num_train_timesteps // steps
    made: list[Step] = []
    times = _timesteps(config, "ddim", steps)
    for t in times[first:]:
        alpha, sigma = _split(alphas[int(t)])
        after = int(t) - gap
        alpha2, sigma2 = _split(alphas[after] if after >= 0 else last)
        keep = sigma2 / sigma
        made.append(Step(t, 1.0, _denoise(config, alpha, sigma), (keep, alpha2 - alpha * keep, 0.0, 0.0)))
    start = _split(alphas[int(times[first])]) if image else (0.0, 1.0)
    return SamplingPlan(*start, tuple(made))


def _split(left: float) -> tuple[float, float]:
    """α and σ of ᾱ."""
    return math.sqrt(left), math.sqrt(1 - left)


def _scales(config: SchedulerConfig) -> Array:
    """s = σ / α for every step of training, rising."""
    alphas = config.alphas()
    if config.rescale_betas_zero_snr:
        alphas[-1] = NEARLY_ZERO
    scales: Array = np.sqrt((1 - alphas) / alphas)
    return scales


def _euler(config: SchedulerConfig, steps: int, first: int, image: bool, ancestral: bool) -> SamplingPlan:
    """A step of Euler's method along (x − denoised) / s; ancestral: farther down, noise brings it back up."""
    scales = _scales(config)
    times = _timesteps(config, "euler", steps)
    s = np.interp(times, np.arange(len(scales)), scales)
    if config.use_karras_sigmas and not ancestral:
        times, s = _karras(float(s[-1]), float(s[0]), scales, steps)
    spacing = config.timestep_spacing or DEFAULT_SPACING["euler"]
    made: list[Step] = []
    for i in range(first, steps):
        now, after = float(s[i]), float(s[i + 1]) if i + 1 < steps else 0.0
        up = math.sqrt(after**2 * (now**2 - after**2) / now**2) if ancestral else 0.0
        down = math.sqrt(after**2 - up**2)
        size = math.sqrt(now**2 + 1)  # of x: 1 / α
        on_x, on_output = _denoise(config, 1 / size, now / size)
        # denoised latents are those of x · α
        made.append(Step(times[i], 1 / size, (on_x / size, on_output), (down / now, 1 - down / now, 0.0, up)))
    noisiest = float(s.max())
    if image:
        return SamplingPlan(1.0, float(s[first]), tuple(made))
    return SamplingPlan(0.0, math.sqrt(noisiest**2 + 1) if spacing == "leading" else noisiest, tuple(made))


def _dpm(config: SchedulerConfig, steps: int, first: int, image: bool) -> SamplingPlan:
    """Between two steps the denoised latents are taken as a line in λ = −ln s through those of this step and of the one
    before; the first and the last step take them as constant."""
    scales = _scales(config)
    times = _timesteps(config, "dpm++2m", steps)
    s = np.interp(times, np.arange(len(scales)), scales)
    if config.use_karras_sigmas:
        times, s = _karras(float(scales[0]), float(scales[-1]), scales, steps)
        if config.beta_schedule != "squaredcos_cap_v2":
            times = [float(round(t)) for t in times]
    made: list[Step] = []
    for i in range(first, steps):
        now, after = float(s[i]), float(s[i + 1]) if i + 1 < steps else 0.0
        size, size2 = math.sqrt(now**2 + 1), math.sqrt(after**2 + 1)
        alpha, sigma, alpha2, sigma2 = 1 / size, now / size, 1 / size2, after / size2
        towards = alpha2 * (1 - after / now)  # 1 − e⁻ʰ for a step of h in λ
        lean = 0.0  # how much of (denoised − previous) is added
        if first < i < steps - 1:
            lean = 0.5 * math.log(now / after) / math.log(float(s[i - 1]) / now)
        made.append(
            Step(
                times[i],
                1.0,
                _denoise(config, alpha, sigma),
                (sigma2 / sigma, towards * (1 + lean), -towards * lean, 0.0),
            )
        )
    size = math.sqrt(float(s[first]) ** 2 + 1)
    start = (1 / size, float(s[first]) / size) if image else (0.0, 1.0)
    return SamplingPlan(*start, tuple(made))


def _lcm(config: SchedulerConfig, steps: int, first: int, image: bool) -> SamplingPlan:
    """The model jumps to the image at once; the next step begins at a noisier version; all but the last add noise."""
    alphas = config.alphas()
    gap = config.num_train_timesteps // config.original_inference_steps
    trained = [gap * i - 1 for i in range(config.original_inference_steps, 0, -1)]
    times = [trained[len(trained) * i // steps] for i in range(steps)]
    made: list[Step] = []
    for i in range(first, steps):
        alpha, sigma = _split(alphas[times[i]])
        # near t = 0 the model's word counts less than x itself
        t = times[i] * config.timestep_scaling
        skip, out = LCM_SIGMA_DATA**2 / (t**2 + LCM_SIGMA_DATA**2), t / math.sqrt(t**2 + LCM_SIGMA_DATA**2)
        on_x, on_output = _denoise(config, alpha, sigma)
        alpha2, sigma2 = _split(alphas[times[i + 1]]) if i + 1 < steps else (1.0, 0.0)
        made.append(
            Step(float(times[i]), 1.0, (out * on_x + skip, out * on_output), (0.0, alpha2, 0.0, sigma2))
        )  # fmt: skip
    start = _split(alphas[times[first]]) if image else (0.0, 1.0)
    return SamplingPlan(*start, tuple(made))


def latent_noise(seed: int, shape: tuple[int, ...], step: int) -> npt.NDArray[np.float32]:
    """Standard normal noise of a shape: what sampling begins with (step 0), and what is put in behind step 1, 2, ….

    Element i in row-major order comes from the block of Threefry-2x32 (20 rounds) with the seed's low and high word as
    key and (i, step) as counter. Its two words a and b give √(−2 ln((a + ½) / 2³²)) · cos(2π · b / 2³²), the cosine of
    Box and Muller (1958), in float64, rounded to float32. `seed` is taken modulo 2⁶⁴.
    """
    count = math.prod(shape)
    a, b = _threefry(seed % (1 << 64), np.arange(count, dtype=np.uint32), step)
    radius = np.sqrt(-2 * np.log((a + 0.5) / 2.0**32))
    values: npt.NDArray[np.float32] = (radius * np.cos(2 * math.pi * (b / 2.0**32))).astype(np.float32)
    return values.reshape(shape)


Words = npt.NDArray[np.uint32]


def _threefry(seed: int, places: Words, step: int) -> tuple[Words, Words]:
    """`tinyweb.array.threefry` on NumPy's arrays: here numbers are wanted at once, on the host."""
    low, high = seed & 0xFFFFFFFF, seed >> 32
    keys = [np.uint32(k) for k in (low, high, low ^ high ^ PARITY)]
    with np.errstate(over="ignore"):
        a, b = places + keys[0], np.full_like(places, step) + keys[1]
        for block in range(5):
            for turn in ROTATIONS[block % 2]:
                a = a + b
                b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
            a, b = a + keys[(block + 1) % 3], b + keys[(block + 2) % 3] + np.uint32(block + 1)
    return a, b
