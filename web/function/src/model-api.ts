/** What this page uses of the model that its generated loader gives, and what the export says of it (docs/bundle.md). */

import type { FunctionModel } from "tinyweb";

export type { TypedArray } from "tinyweb";

export type RunModel = Pick<FunctionModel, "info" | "on" | "dispose" | "run">;

/** A size: a number, the name of one that varies, or what is made of these, as the loader writes it: "(length + 1)", "max(a, b)". */
export type Size = number | string;

/** An input or output. */
export interface ArrayInfo {
  name: string;
  dtype: string;
  /** Where sizes vary, what they are now. */
  shape: number[];
  /** Absent where nothing varies. */
  sizes?: Size[];
  /** Of text (`dtype` "text"), the words that the model tells apart, or gives. */
  texts?: string[];
}

export interface FunctionFacts {
  name: string;
  inputs: ArrayInfo[];
  outputs: ArrayInfo[];
  kernels: number;
}

export type Range = { min: number; max: number };

/** `info` of model.js as far as it makes sense, and what the manifest says of the graph that was exported. */
export interface Facts {
  name: string;
  functions: FunctionFacts[];
  /** What sizes that vary may be. */
  variables: Record<string, Range>;
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
    const { dtype, shape, sizes, texts } = object(array);
    const words = Array.isArray(texts) ? { texts: texts.filter(isText) } : {};
    return {
      name,
      dtype: "texts" in words ? "text" : isText(dtype) ? dtype : "f32",
      ...words,
      shape: Array.isArray(shape) ? shape.map(Number) : [],
      ...(Array.isArray(sizes) ? { sizes: sizes as Size[] } : {}),
    };
  });
}

export function parseFacts(info: unknown): Facts {
  const { name, functions, variables } = object(info);
  return {
    name: isText(name) ? name : "",
    functions: Object.entries(object(functions)).map(([key, told]) => {
      const { inputs, outputs, kernels } = object(told);
      return { name: key, inputs: arrays(inputs), outputs: arrays(outputs), kernels: Number(kernels ?? 0) };
    }),
    variables: object(variables) as Record<string, Range>,
  };
}

const OPERATIONS: Record<string, (a: number, b: number) => number> = {
  " + ": (a, b) => a + b,
  " · ": (a, b) => a * b,
  " / ": (a, b) => Math.floor(a / b),
  " mod ": (a, b) => a - b * Math.floor(a / b),
  max: Math.max,
  min: Math.min,
};

/** @param now of each variable @returns undefined for what is made of anything else */
export function sizeOf(size: Size, now: Readonly<Record<string, number>>): number | undefined {
  if (typeof size === "number") return size;
  if (now[size] !== undefined) return now[size];
  if (/^\d+$/u.test(size)) return Number(size);
  const [, called = "", inner = ""] = /^(max|min|)\((.*)\)$/su.exec(size) ?? [];
  const signs = called === "" ? Object.keys(OPERATIONS).filter((sign) => sign.startsWith(" ")) : [", "];
  let depth = 0;
  for (let at = 0; at < inner.length; at++) {
    if (inner[at] === "(") depth++;
    if (inner[at] === ")") depth--;
    const sign = depth === 0 ? signs.find((one) => inner.startsWith(one, at)) : undefined;
    if (sign === undefined) continue;
    const [a, b] = [sizeOf(inner.slice(0, at), now), sizeOf(inner.slice(at + sign.length), now)];
    if (a !== undefined && b !== undefined) return OPERATIONS[called || sign]?.(a, b);
  }
  return undefined;
}

/** With the shapes that inputs and outputs have for these sizes. */
export function settled(found: FunctionFacts, now: Readonly<Record<string, number>>): FunctionFacts {
  const at = (port: ArrayInfo): ArrayInfo =>
    port.sizes === undefined ? port : { ...port, shape: port.sizes.map((size, axis) => sizeOf(size, now) ?? port.shape[axis] ?? 1) };
  return { ...found, inputs: found.inputs.map(at), outputs: found.outputs.map(at) };
}

/** A size that a reader may choose: `times` as many as its variable, in which it goes up in steps. */
export interface Choosable {
  name: string;
  /** What the model calls the size. */
  label: string;
  times: number;
}

/** Variables that are sizes of inputs, by themselves or so many times. */
export function choosable(inputs: readonly ArrayInfo[], variables: Readonly<Record<string, Range>>): Choosable[] {
  const sizes = inputs.flatMap((port) => port.sizes ?? []).map(String);
  return Object.keys(variables).flatMap((name): Choosable[] => {
    if (sizes.includes(name)) return [{ name, label: name, times: 1 }];
    const begin = `(${name} · `;
    const times = sizes.filter((size) => size.startsWith(begin)).map((size) => Number(size.slice(begin.length, -1)));
    const found = times.find((one) => one > 0);
    if (found === undefined) return [];
    const counted = ` / ${found}`; // as an export calls what it counts of a size in steps
    return [{ name, label: name.endsWith(counted) ? name.slice(0, -counted.length) : `${name} · ${found}`, times: found }];
  });
}

/** The variable that is a size by itself, if any is: what is given may say how large it is. */
export function variableOf({ sizes }: ArrayInfo, variables: Readonly<Record<string, Range>>): string | undefined {
  return sizes?.findLast((size): size is string => typeof size === "string" && size in variables);
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
