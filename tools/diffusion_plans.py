"""Write tests/models/fixtures/diffusion_plans.json: what samplers in other languages must compute, too.

    python tools/diffusion_plans.py

Tables of `tinyweb.models.schedulers.plan_steps` for several configs, schedulers and step counts, and noise.
"""

import json
from pathlib import Path
from typing import Any

from tinyweb.models.schedulers import SCHEDULERS, SchedulerConfig, latent_noise, plan_steps

TARGET = Path(__file__).resolve().parent.parent / "tests" / "models" / "fixtures" / "diffusion_plans.json"
CONFIGS = {
    "sd1": SchedulerConfig(timestep_spacing="leading", steps_offset=1, set_alpha_to_one=False),
    "sd2-v": SchedulerConfig(prediction_type="v_prediction", steps_offset=1, set_alpha_to_one=False),
    "turbo": SchedulerConfig(timestep_spacing="trailing", steps_offset=1),
    "zero-snr": SchedulerConfig(
        timestep_spacing="trailing", prediction_type="v_prediction", rescale_betas_zero_snr=True
    ),
    "cosine-karras": SchedulerConfig(beta_schedule="squaredcos_cap_v2", use_karras_sigmas=True),
    "linear": SchedulerConfig(beta_schedule="linear", beta_start=1e-4, beta_end=0.02, timestep_spacing="linspace"),
}
RUNS: list[tuple[int, float | None]] = [(1, None), (4, None), (7, 0.6), (16, None)]
NOISES = [(0, (4, 2, 2), 0), (12345, (4, 2, 3), 7), (2**40 + 5, (3, 2, 2), 1)]


def tables() -> dict[str, Any]:
    """All of the file."""
    plans = [
        {
            "config": name, "scheduler": scheduler, "steps": steps, "strength": strength,
            **plan_steps(config, scheduler, steps, strength).to_json(),
        }
        for name, config in CONFIGS.items() for scheduler in SCHEDULERS for steps, strength in RUNS
    ]  # fmt: skip
    noises = [
        {"seed": seed, "shape": list(shape), "step": step, "values": latent_noise(seed, shape, step).ravel().tolist()}
        for seed, shape, step in NOISES
    ]
    return {"configs": {n: c.to_json() for n, c in CONFIGS.items()}, "plans": plans, "noise": noises}


def main() -> None:
    made = tables()
    rows = {key: [json.dumps(row) for row in made[key]] for key in ("plans", "noise")}
    lists = ",\n".join(f'"{key}": [\n' + ",\n".join(found) + "\n]" for key, found in rows.items())
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(f'{{\n"configs": {json.dumps(made["configs"])},\n{lists}\n}}\n')
    print(f"{TARGET.name}: {len(made['plans'])} plans")


if __name__ == "__main__":
    main()
