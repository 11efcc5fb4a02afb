/** What the loader says about its model. */

/** The model's own figures, as far as its loader states them. */
export interface ModelFacts {
  name?: string;
  parameters?: number;
  quant?: string;
  /** What quantised weights cost, measured beside f32. */
  fidelity?: string;
  /** Tokens. */
  context?: number;
  modelBytes?: number;
  temperature?: number;
  topP?: number;
  maxTokens?: number;
}

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
    fidelity: text(["fidelity"], ["model", "fidelity"]),
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
