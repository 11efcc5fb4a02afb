import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { normals, threefry } from "../src/image/noise.js";
import { planSteps, type SchedulerConfig, type SchedulerName, type StepPlan } from "../src/image/schedulers.js";

interface Fixture {
  configs: Record<string, SchedulerConfig>;
  plans: (StepPlan & { config: string; scheduler: SchedulerName; strength: number | null })[];
  noise: { seed: number; shape: number[]; step: number; values: number[] }[];
}

/** Tables that tinyweb's Python side makes and compares with diffusers' samplers (tools/diffusion_plans.py). */
const fixture = JSON.parse(
  readFileSync(new URL("../../../tests/models/fixtures/diffusion_plans.json", import.meta.url), "utf8"),
) as Fixture;

function close(mine: number, theirs: number, what: string): void {
  expect(Math.abs(mine - theirs), `${what}: ${mine}, not ${theirs}`).toBeLessThanOrEqual(1e-6 * Math.max(1, Math.abs(theirs)));
}

describe.each(Object.keys(fixture.configs))("tables of %s", (config) => {
  const plans = fixture.plans.filter((plan) => plan.config === config);
  test.each(plans.map((plan) => [`${plan.scheduler}, ${plan.steps.length} steps, strength ${plan.strength}`, plan] as const))(
    "%s",
    (name, plan) => {
      // With a strength, of seven steps that share is left.
      const count = plan.strength === null ? plan.steps.length : 7;
      const mine = planSteps(fixture.configs[config] as SchedulerConfig, plan.scheduler, count, plan.strength ?? undefined);
      expect(mine.steps.length).toBe(plan.steps.length);
      close(mine.image, plan.image, `${name}: image`);
      close(mine.noise, plan.noise, `${name}: noise`);
      mine.steps.forEach((step, i) => {
        const theirs = plan.steps[i] as StepPlan["steps"][number];
        close(step.timestep, theirs.timestep, `${name}: time of step ${i}`);
        close(step.input, theirs.input, `${name}: input of step ${i}`);
        expect([step.denoise.length, step.next.length], `${name}: step ${i}`).toEqual([theirs.denoise.length, theirs.next.length]);
        step.denoise.forEach((value, j) => close(value, theirs.denoise[j] as number, `${name}: denoise of step ${i}`));
        step.next.forEach((value, j) => close(value, theirs.next[j] as number, `${name}: next of step ${i}`));
      });
    },
  );
});

test("the tables are there", () => {
  expect(fixture.plans.length).toBeGreaterThan(100);
  expect(fixture.noise.length).toBeGreaterThan(1);
});

test.each(fixture.noise)("noise of seed $seed, draw $step", ({ seed, shape, step, values }) => {
  const mine = normals(
    seed,
    step,
    shape.reduce((a, b) => a * b, 1),
  );
  expect(mine.length).toBe(values.length);
  mine.forEach((value, i) => expect(Math.abs(value - (values[i] as number))).toBeLessThanOrEqual(2e-7 * Math.max(1, Math.abs(value))));
});

test("Threefry's published answers", () => {
  // Known answers of the Random123 library (kat_vectors) for Threefry-2x32 with 20 rounds.
  expect(threefry(0, 0, 0, 0)).toEqual([0x6b200159, 0x99ba4efe]);
  expect(threefry(-1, -1, -1, -1)).toEqual([0x1cb996fc, 0xbb002be7]);
  expect(threefry(0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3)).toEqual([0xc4923a9c, 0x483df7a0]);
});

test("noise is normal", () => {
  const many = normals(3, 0, 100_000);
  const mean = many.reduce((sum, x) => sum + x, 0) / many.length;
  const variance = many.reduce((sum, x) => sum + (x - mean) ** 2, 0) / many.length;
  expect(Math.abs(mean)).toBeLessThan(0.02);
  expect(Math.abs(variance - 1)).toBeLessThan(0.02);
});

describe("what the tables leave out", () => {
  const config: SchedulerConfig = {
    num_train_timesteps: 1000,
    beta_start: 0.00085,
    beta_end: 0.012,
    beta_schedule: "scaled_linear",
    prediction_type: "epsilon",
    timestep_spacing: "linspace",
    steps_offset: 0,
    set_alpha_to_one: false,
    rescale_betas_zero_snr: false,
    use_karras_sigmas: false,
    original_inference_steps: 50,
    timestep_scaling: 10,
  };
  const steps = (change: Partial<SchedulerConfig>, name: SchedulerName, count: number): StepPlan["steps"] =>
    planSteps({ ...config, ...change }, name, count).steps;

  test("a network that answers the picture", () => {
    for (const { denoise } of steps({ prediction_type: "sample" }, "ddim", 5)) expect(denoise).toEqual([0, 1]);
    // x · α of Euler's latents, which the picture does not need
    for (const { denoise } of steps({ prediction_type: "sample" }, "euler", 5)) expect(denoise).toEqual([0, 1]);
  });

  test.each(["euler", "euler-ancestral", "ddim"] as const)("a single step of %s is from the last time of the training", (name) => {
    expect(steps({}, name, 1).map(({ timestep }) => timestep)).toEqual([999]);
  });

  test("levels after Karras run over the whole training, whatever its noise; DPM++ takes whole times", () => {
    for (let i = 0; i < 60; i++) {
      const change = { use_karras_sigmas: true, beta_end: 0.01 + 0.0001 * i };
      for (const name of ["euler", "dpm++2m"] as const) {
        const times = steps(change, name, 7).map(({ timestep }) => timestep);
        expect(times[0]).toBeCloseTo(999, 6);
        expect(times).toEqual([...times].sort((a, b) => b - a));
        if (name === "dpm++2m") expect(times.every(Number.isInteger)).toBe(true);
        else expect(times.slice(1, -1).some(Number.isInteger)).toBe(false);
      }
    }
  });

  test("LCM's boundary: the nearer time 0, the more of x itself", () => {
    for (const timestep_scaling of [0.0005, 0.01, 1]) {
      for (const { timestep, denoise } of steps({ timestep_scaling }, "lcm", 4)) {
        const t = timestep * timestep_scaling;
        const bars = Array.from(
          { length: timestep + 1 },
          (_, i) => 1 - (0.00085 ** 0.5 + ((0.012 ** 0.5 - 0.00085 ** 0.5) * i) / 999) ** 2,
        );
        const bar = bars.reduce((product, factor) => product * factor, 1);
        const share = t / Math.sqrt(t * t + 0.25);
        expect(denoise[0]).toBeCloseTo(share / Math.sqrt(bar) + 0.25 / (t * t + 0.25), 8);
        expect(denoise[1]).toBeCloseTo(-share * Math.sqrt((1 - bar) / bar), 8);
      }
    }
  });
});
