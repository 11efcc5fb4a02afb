/**
 * Samplers as tables of coefficients: `planSteps` says how the latents x become a picture (docs/image.md).
 *
 *   x = image · z + noise · N(0)                                  z: a picture to begin from, N: noise
 *   for each step k = 1, 2, …
 *     output   = unet(x · input, timestep)
 *     denoised = denoise[0] · x + denoise[1] · output             the picture as it is seen now
 *     x        = next[0] · x + next[1] · denoised + next[2] · (denoised of the step before) + next[3] · N(k)
 *
 * Sources: DDIM (Song, Meng and Ermon 2020), Euler and its ancestral form (Karras et al. 2022), DPM-Solver++ 2M (Lu et al.
 * 2022), LCM (Luo et al. 2023); noise without a rest of signal at its end: Lin et al. 2023. Levels of noise:
 * α = √ᾱ, σ = √(1 − ᾱ), s = σ / α.
 */

export const SCHEDULERS = ["ddim", "euler", "euler-ancestral", "dpm++2m", "lcm"] as const;
export type SchedulerName = (typeof SCHEDULERS)[number];

export const BETA_SCHEDULES = ["linear", "scaled_linear", "squaredcos_cap_v2"] as const;
export const PREDICTIONS = ["epsilon", "v_prediction", "sample"] as const;
export const SPACINGS = ["leading", "linspace", "trailing"] as const;

/** What the model was trained with, named as in the manifest. */
export interface SchedulerConfig {
  num_train_timesteps: number;
  beta_start: number;
  beta_end: number;
  beta_schedule: (typeof BETA_SCHEDULES)[number];
  /** What the UNet answers: the noise; v = α · noise − σ · picture; or the picture. */
  prediction_type: (typeof PREDICTIONS)[number];
  /** Which times of the training are used; null: as usual for the sampler. */
  timestep_spacing: (typeof SPACINGS)[number] | null;
  /** Added to the times of "leading". */
  steps_offset: number;
  /** DDIM ends with no noise at all, in place of the least of the training. */
  set_alpha_to_one: boolean;
  rescale_betas_zero_snr: boolean;
  /** Levels for Euler and DPM++ as Karras et al. space them. */
  use_karras_sigmas: boolean;
  /** Steps of the model that LCM was distilled from. */
  original_inference_steps: number;
  timestep_scaling: number;
}

export interface PlannedStep {
  timestep: number;
  input: number;
  denoise: [x: number, output: number];
  next: [x: number, denoised: number, previous: number, noise: number];
}

export interface StepPlan {
  image: number;
  noise: number;
  steps: PlannedStep[];
}

/** A level of noise: x = alpha · picture + sigma · noise. */
interface Level {
  alpha: number;
  sigma: number;
}

const CLEAN: Level = { alpha: 1, sigma: 0 };
/** In place of an ᾱ of 0 where σ / α is needed. */
const LEAST = 2 ** -24;
const MAX_BETA = 0.999;
const LCM_SIGMA_DATA = 0.5;
const KARRAS_RHO = 7;

/** @param count steps from noise to picture @param strength 0 … 1: from a picture, only the last share of the steps, at least one */
export function planSteps(config: SchedulerConfig, name: SchedulerName, count: number, strength?: number): StepPlan {
  const bars = alphaBars(config);
  const euler = name.startsWith("euler");
  const spacing = config.timestep_spacing ?? (name === "ddim" ? "leading" : "linspace");
  let times = timesteps(config, name, spacing, count);
  const exact = (bar: number): Level => ({ alpha: Math.sqrt(bar), sigma: Math.sqrt(1 - bar) });
  const table = bars.map((bar) => Math.sqrt((1 - (bar || LEAST)) / (bar || LEAST)));
  let levels: Level[];
  if (name === "ddim" || name === "lcm") {
    levels = times.map((t) => exact(bars[t] as number));
  } else {
    let quotients = times.map((t) => between(table, t));
    if (config.use_karras_sigmas && name !== "euler-ancestral") {
      const [high, low] = euler ? [quotients[0], quotients.at(-1)] : [table.at(-1), table[0]];
      quotients = karras(high as number, low as number, count);
      times = quotients.map((s) => timeOf(table, s)).map(euler || config.beta_schedule === "squaredcos_cap_v2" ? (t) => t : roundHalfEven);
    }
    levels = quotients.map((s) => ({ alpha: 1 / Math.sqrt(s * s + 1), sigma: s / Math.sqrt(s * s + 1) }));
  }
  const last = name === "ddim" && !config.set_alpha_to_one ? exact(bars[0] as number) : CLEAN;
  const skipped = strength === undefined ? 0 : count - Math.max(1, Math.min(Math.floor(count * strength), count));
  const gap = Math.floor(config.num_train_timesteps / count);
  const steps: PlannedStep[] = [];
  for (let i = skipped; i < count; i++) {
    const timestep = times[i] as number;
    const here = levels[i] as Level;
    let behind = levels[i + 1] ?? last;
    if (name === "ddim") behind = timestep >= gap ? exact(bars[timestep - gap] as number) : last;
    let denoise = seen(here, config);
    let next: PlannedStep["next"];
    if (name === "ddim") next = ddim(here, behind);
    else if (name === "lcm") {
      denoise = consistent(denoise, timestep * config.timestep_scaling);
      next = [0, behind.alpha, 0, behind.sigma];
    } else if (name === "dpm++2m") next = dpm(here, behind, i > skipped ? levels[i - 1] : undefined);
    else {
      // Euler's latents are those of the others divided by α.
      denoise = [denoise[0] * here.alpha, denoise[1]];
      next = towards(here.sigma / here.alpha, behind.sigma / behind.alpha, name === "euler-ancestral");
    }
    steps.push({ timestep, input: euler ? here.alpha : 1, denoise, next });
  }
  const begin = levels[skipped] ?? CLEAN;
  const s = begin.sigma / begin.alpha;
  if (strength !== undefined) return euler ? { image: 1, noise: s, steps } : { image: begin.alpha, noise: begin.sigma, steps };
  const full = spacing === "leading" ? Math.sqrt(s * s + 1) : s;
  return { image: 0, noise: euler ? full : 1, steps };
}

/** ᾱ of every step of the training. */
function alphaBars(config: SchedulerConfig): number[] {
  const { num_train_timesteps: count, beta_start, beta_end, beta_schedule } = config;
  const power = beta_schedule === "scaled_linear" ? 2 : 1;
  const [first, last] = [beta_start ** (1 / power), beta_end ** (1 / power)];
  const cosine = (share: number): number => Math.cos(((share + 0.008) / 1.008) * (Math.PI / 2)) ** 2;
  let product = 1;
  const bars = Array.from({ length: count }, (_, i) => {
    const beta =
      beta_schedule === "squaredcos_cap_v2"
        ? Math.min(1 - cosine((i + 1) / count) / cosine(i / count), MAX_BETA)
        : (first + ((last - first) * i) / Math.max(1, count - 1)) ** power;
    product *= 1 - beta;
    return product;
  });
  if (!config.rescale_betas_zero_snr) return bars;
  const roots = bars.map(Math.sqrt);
  const [high, low] = [roots[0] as number, roots.at(-1) as number];
  return roots.map((root) => (((root - low) * high) / (high - low)) ** 2);
}

/** The times of the steps, falling. */
function timesteps(config: SchedulerConfig, name: SchedulerName, spacing: (typeof SPACINGS)[number], count: number): number[] {
  const { num_train_timesteps: all, steps_offset: offset } = config;
  const list = (time: (i: number) => number): number[] => Array.from({ length: count }, (_, i) => time(i));
  if (name === "lcm") {
    // Some of the times that the model was distilled at.
    const known = Math.min(config.original_inference_steps, all);
    const gap = Math.floor(all / known);
    return list((i) => (known - Math.floor((i * known) / count)) * gap - 1);
  }
  const parts = name === "dpm++2m" ? count + 1 : count; // it also has a time behind its last step
  const whole = name.startsWith("euler") ? (t: number): number => t : roundHalfEven;
  switch (spacing) {
    case "linspace":
      return list((i) => whole(parts > 1 ? (parts - 1 - i) * ((all - 1) / (parts - 1)) : all - 1));
    case "leading":
      return list((i) => Math.min((parts - 1 - i) * Math.floor(all / parts) + offset, all - 1));
    case "trailing":
      return list((i) => roundHalfEven(all - (i * all) / count) - 1);
  }
}

function roundHalfEven(x: number): number {
  const low = Math.floor(x);
  return x - low === 0.5 ? low + (low % 2) : Math.round(x);
}

/** The table's value at a place between its entries. */
function between(table: readonly number[], at: number): number {
  const low = Math.floor(at);
  const [a, b] = [table[low] as number, table[Math.min(low + 1, table.length - 1)] as number];
  return a + (b - a) * (at - low);
}

/** The place of a value in a rising table, between the logarithms of its entries. */
function timeOf(table: readonly number[], value: number): number {
  let low = 0;
  while (low < table.length - 2 && (table[low + 1] as number) <= value) low++;
  const [a, b] = [Math.log(table[low] as number), Math.log(table[low + 1] as number)];
  return low + Math.min(1, Math.max(0, (Math.log(value) - a) / (b - a)));
}

function karras(high: number, low: number, count: number): number[] {
  const [a, b] = [high ** (1 / KARRAS_RHO), low ** (1 / KARRAS_RHO)];
  return Array.from({ length: count }, (_, i) => (a + (b - a) * (count > 1 ? i / (count - 1) : 0)) ** KARRAS_RHO);
}

/** The picture, from x and the UNet's output. */
function seen({ alpha, sigma }: Level, { prediction_type }: SchedulerConfig): PlannedStep["denoise"] {
  switch (prediction_type) {
    case "epsilon":
      return [1 / alpha, -sigma / alpha];
    case "v_prediction":
      return [alpha, -sigma];
    case "sample":
      return [0, 1];
  }
}

/** x' = α' · picture + σ' · noise, with the noise that x is made of. */
function ddim(here: Level, behind: Level): PlannedStep["next"] {
  const x = behind.sigma / here.sigma;
  return [x, behind.alpha - x * here.alpha, 0, 0];
}

/** The boundary condition of consistency models: at time 0 the picture is x itself. @param time scaled */
function consistent([x, output]: PlannedStep["denoise"], time: number): PlannedStep["denoise"] {
  const data = LCM_SIGMA_DATA * LCM_SIGMA_DATA;
  const sum = time * time + data;
  const share = time / Math.sqrt(sum);
  return [share * x + data / sum, share * output];
}

/** Second order from the last two steps; first order at first, and where no noise is left. */
function dpm(here: Level, behind: Level, before: Level | undefined): PlannedStep["next"] {
  if (behind.sigma === 0) return [0, 1, 0, 0];
  const lambda = ({ alpha, sigma }: Level): number => Math.log(alpha / sigma);
  const h = lambda(behind) - lambda(here);
  const whole = -behind.alpha * Math.expm1(-h);
  const slope = before ? (0.5 * h) / (lambda(here) - lambda(before)) : 0;
  return [behind.sigma / here.sigma, whole * (1 + slope), -whole * slope, 0];
}

/** Along the straight line to the picture, from level s to `to`; the ancestral form goes further and adds fresh noise. */
function towards(s: number, to: number, ancestral: boolean): PlannedStep["next"] {
  const up = ancestral ? Math.min(to, Math.sqrt((to * to * (s * s - to * to)) / (s * s))) : 0;
  const down = Math.sqrt(to * to - up * up);
  return [down / s, 1 - down / s, 0, up];
}
