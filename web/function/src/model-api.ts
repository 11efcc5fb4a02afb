/** What this page uses of the model that its generated loader gives, and what the export says of it (docs/bundle.md). */

import type { ArrayInfo, FunctionModel } from "tinyweb";

export type { ArrayInfo, TypedArray } from "tinyweb";

export type RunModel = Pick<FunctionModel, "info" | "on" | "dispose" | "run">;

export interface FunctionFacts {
  name: string;
  inputs: ArrayInfo[];
  outputs: ArrayInfo[];
  kernels: number;
}

/** `info` of model.js as far as it makes sense, and what the manifest says of the graph that was exported. */
export interface Facts {
  name: string;
  functions: FunctionFacts[];
}

/** Section "graph" of the manifest: all of it may be absent. */
export interface GraphFacts {
  labels: string[];
  /** Sizes as the model names them, by input and output. */
  shapes: Record<string, (number | string | null)[]>;
  /** What the symbolic sizes are in each function. */
  sizes: Record<string, Record<string, number>>;
  metadata: Record<string, string>;
  /** Whether tokenizer.json lies in the bundle. */
  tokenizer: boolean;
}

const object = (value: unknown): Record<string, unknown> =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
const isText = (value: unknown): value is string => typeof value === "string";

function arrays(given: unknown): ArrayInfo[] {
  return Object.entries(object(given)).map(([name, array]) => {
    const { dtype, shape } = object(array);
    return { name, dtype: isText(dtype) ? dtype : "f32", shape: Array.isArray(shape) ? shape.map(Number) : [] };
  });
}

export function parseFacts(info: unknown): Facts {
  const { name, functions } = object(info);
  return {
    name: isText(name) ? name : "",
    functions: Object.entries(object(functions)).map(([key, told]) => {
      const { inputs, outputs, kernels } = object(told);
      return { name: key, inputs: arrays(inputs), outputs: arrays(outputs), kernels: Number(kernels ?? 0) };
    }),
  };
}

/** @param sections `info.sections` of the loaded model */
export function parseGraph(sections: unknown): GraphFacts {
  const graph = object(object(sections)["graph"]);
  const { labels, metadata, tokenizer } = graph;
  const texts = Object.entries(object(metadata)).filter((entry): entry is [string, string] => isText(entry[1]));
  const sizes = Object.entries(object(graph["sizes"])).map(([name, of]) => [
    name,
    Object.fromEntries(Object.entries(object(of)).filter((entry): entry is [string, number] => typeof entry[1] === "number")),
  ]);
  const shapes = [...(Array.isArray(graph["inputs"]) ? graph["inputs"] : []), ...(Array.isArray(graph["outputs"]) ? graph["outputs"] : [])]
    .map(object)
    .filter((port) => isText(port["name"]) && Array.isArray(port["shape"]))
    .map((port) => [port["name"], port["shape"]]);
  return {
    labels: Array.isArray(labels) ? labels.filter(isText) : [],
    metadata: Object.fromEntries(texts),
    shapes: Object.fromEntries(shapes),
    sizes: Object.fromEntries(sizes),
    tokenizer: tokenizer === true,
  };
}

export function pageTitle(info: unknown): string {
  return parseFacts(info).name || "TinyFunction";
}

/** For the about box. */
export function sizesOf(info: unknown): { parameters?: number; modelBytes?: number } {
  const { parameters, modelBytes } = object(info);
  return {
    ...(typeof parameters === "number" ? { parameters } : {}),
    ...(typeof modelBytes === "number" ? { modelBytes } : {}),
  };
}
