/** What this page uses of the model that its generated loader gives (docs/search.md). */

import type { Embedder, Passage as LibraryPassage } from "tinyweb/embed";

export type { EmbedderInfo as EmbedInfo } from "tinyweb/embed";

/** Where a passage begins and ends in its document, which has its text. */
export type Passage = Omit<LibraryPassage, "text">;

export type SearchModel = Pick<Embedder, "info" | "on" | "dispose" | "embed" | "embedImages" | "passages">;

/** `info` of model.js, as far as it says. `pictures`: it reads them, too. */
export function factsOf(info: unknown): { name: string; parameters: number; quant: string; fidelity?: string; pictures: boolean } {
  const given = (typeof info === "object" && info !== null ? info : {}) as Record<string, unknown>;
  const text = (key: string): string => (typeof given[key] === "string" ? (given[key] as string) : "");
  return {
    name: text("name"),
    parameters: typeof given["parameters"] === "number" ? given["parameters"] : 0,
    quant: text("quant"),
    ...(text("fidelity") === "" ? {} : { fidelity: text("fidelity") }),
    pictures: given["pictures"] === true,
  };
}

export function pageTitle(info: unknown): string {
  const { name } = factsOf(info);
  return name === "" || /^tinyembed/iu.test(name) ? "TinySearch" : `Search with ${name}`;
}
