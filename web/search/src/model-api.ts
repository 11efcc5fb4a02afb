/** What the page relies on from a model written by `tinyweb export embed`, beyond what every page does. */

import type { LoadedModel, ModelInfo } from "tinyweb-shell";

export interface EmbedInfo extends ModelInfo {
  model: string;
  /** Numbers of a vector. */
  dimensions: number;
  /** Of the last call of the network. */
  runMs?: number;
}

export interface Passage {
  /** Where it begins and ends in the text, as strings count. */
  start: number;
  end: number;
}

export interface SearchModel extends LoadedModel {
  readonly info: EmbedInfo;
  /** A vector of length 1 for each text. */
  embed(texts: readonly string[], options: { kind: "query" | "passage"; signal: AbortSignal }): Promise<Float32Array[]>;
  /** A long text as passages, in order, each made when it is asked for. */
  passages(text: string): Iterable<Passage>;
}

/** `info` of model.js, as far as it says. */
export function factsOf(info: unknown): { name: string; parameters: number; quant: string } {
  const given = (typeof info === "object" && info !== null ? info : {}) as Record<string, unknown>;
  const text = (key: string): string => (typeof given[key] === "string" ? (given[key] as string) : "");
  return { name: text("name"), parameters: typeof given["parameters"] === "number" ? given["parameters"] : 0, quant: text("quant") };
}

export function pageTitle(info: unknown): string {
  const { name } = factsOf(info);
  return name === "" || /^tinyembed/iu.test(name) ? "TinySearch" : `Search with ${name}`;
}
