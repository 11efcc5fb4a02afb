/** Fetching the generated loader, and what it says about its model. */

import type { ModelModule } from "../model-api";
import { errorText } from "../text/failures";

/** The model's own figures, as far as its loader states them. */
export interface ModelFacts {
  name?: string;
  parameters?: number;
  quant?: string;
  /** Tokens. */
  context?: number;
  modelBytes?: number;
  temperature?: number;
  topP?: number;
  maxTokens?: number;
}

/** An error with a code like the runtime's, for what fails before the runtime is there. */
export class PageError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
    this.name = "PageError";
  }
}

/** `attempt` counts the imports that have failed before. */
export type ModelImporter = (attempt: number) => Promise<ModelModule>;

/** Imports `model/model.js` next to the page. */
export const importModel: ModelImporter = async (attempt) => {
  const url = new URL("./model/model.js", document.baseURI);
  // Some browsers remember a failed import for as long as the page lives.
  if (attempt > 0) url.searchParams.set("attempt", attempt.toString());
  let module: Partial<ModelModule>;
  try {
    module = (await import(/* @vite-ignore */ url.href)) as Partial<ModelModule>;
  } catch (error) {
    throw new PageError("download-failed", `${url.pathname} could not be loaded: ${errorText(error)}`);
  }
  if (typeof module.load !== "function") throw new PageError("bad-manifest", `${url.pathname} has no function "load".`);
  return module as ModelModule;
};

function pick(source: unknown, ...path: string[]): unknown {
  let value = source;
  for (const key of path) {
    if (typeof value !== "object" || value === null) return undefined;
    value = (value as Record<string, unknown>)[key];
  }
  return value;
}

/** Reads what it can from the loader's `info`: either flat, or laid out like the bundle's manifest. */
export function parseFacts(info: unknown): ModelFacts {
  const facts: ModelFacts = {};
  const text = (...paths: string[][]): string | undefined => {
    for (const path of paths) {
      const value = pick(info, ...path);
      if (typeof value === "string" && value !== "") return value;
    }
    return undefined;
  };
  const figure = (...paths: string[][]): number | undefined => {
    for (const path of paths) {
      const value = pick(info, ...path);
      if (typeof value === "number" && Number.isFinite(value) && value >= 0) return value;
    }
    return undefined;
  };
  const found = {
    name: text(["name"]),
    quant: text(["quant"], ["model", "quant"]),
    parameters: figure(["parameters"], ["model", "parameters"]),
    context: figure(["context"], ["model", "context"]),
    modelBytes: figure(["modelBytes"], ["weights", "bytes"]),
    temperature: figure(["defaults", "temperature"], ["chat", "defaults", "temperature"]),
    topP: figure(["defaults", "topP"], ["defaults", "top_p"], ["chat", "defaults", "top_p"]),
    maxTokens: figure(["defaults", "maxTokens"], ["defaults", "max_tokens"], ["chat", "defaults", "max_tokens"]),
  };
  for (const [key, value] of Object.entries(found)) if (value !== undefined) Object.assign(facts, { [key]: value });
  return facts;
}

/** What to call the model in a sentence. */
export function displayName(facts: ModelFacts): string {
  return facts.name === undefined || /^tinychat/iu.test(facts.name) ? "TinyChat" : facts.name;
}
