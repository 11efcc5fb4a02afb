/**
 * A chat template, rendered as `transformers` does. Uses the Jinja library's parser and interpreter; its `Template` class
 * would bring a source formatter into every page.
 */

import { Environment, Interpreter, parse, tokenize } from "@huggingface/jinja";

/** A template from a model's folder must not fill the memory. */
const MAX_RANGE = 100_000;

export class ChatTemplate {
  private readonly program: ReturnType<typeof parse>;

  constructor(source: string) {
    this.program = parse(tokenize(source, { lstrip_blocks: true, trim_blocks: true }));
  }

  render(variables: Record<string, unknown>): string {
    const environment = new Environment();
    for (const [name, value] of Object.entries({ ...GLOBALS, ...variables })) environment.set(name, value);
    return String(new Interpreter(environment).run(this.program).value);
  }
}

const GLOBALS: Record<string, unknown> = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  raise_exception: (message: string) => {
    throw new Error(message);
  },
  range: (first: number, second?: number, step = 1): number[] => {
    const [start, stop] = second === undefined ? [0, first] : [first, second];
    const length = Math.max(0, Math.ceil((stop - start) / step));
    if (!(length <= MAX_RANGE)) throw new Error(`range of ${length} items`);
    return Array.from({ length }, (_, i) => start + i * step);
  },
  strftime_now: (format: string): string => {
    const now = new Date();
    const iso = new Date(now.getTime() - 60_000 * now.getTimezoneOffset()).toISOString(); // of the local time
    const month = (style: "short" | "long"): string => now.toLocaleString("en", { month: style });
    const fields: Record<string, string> = {
      Y: iso.slice(0, 4),
      m: iso.slice(5, 7),
      d: iso.slice(8, 10),
      b: month("short"),
      B: month("long"),
      H: iso.slice(11, 13),
      M: iso.slice(14, 16),
      S: iso.slice(17, 19),
    };
    return format.replace(/%([A-Za-z])/g, (field, letter) => fields[letter] ?? field);
  },
};
