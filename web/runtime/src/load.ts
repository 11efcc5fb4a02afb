/** `load(url)`: a model of any kind, by what its manifest says. Of the library, only what that kind needs is loaded. */

import { badArgument, checkOneOf } from "./arguments.js";
import { checkFormat, fetchManifest } from "./bundle.js";
import { Value } from "./check.js";
import { loadChat, loadFunction, type Chat, type FunctionModel } from "./client.js";
import { fetchAny, folderUrl, loadOptions, type LoadOptions } from "./connection.js";
import type { Detector } from "./detect/index.js";
import type { Embedder } from "./embed/index.js";
import type { ImageGenerator } from "./image/index.js";

/** What `load` gives, by task. */
export interface Models {
  chat: Chat;
  function: FunctionModel;
  detect: Detector;
  image: ImageGenerator;
  embed: Embedder;
}

export type Task = keyof Models;
export type Model = Models[Task];

export interface AnyLoadOptions<Kind extends Task = Task> extends LoadOptions {
  /** The kind that is expected: a bundle of another kind is then an error, and the result has this kind's type. */
  task?: Kind;
}

type Loader<Kind extends Task> = (base: URL, options: LoadOptions) => Promise<Models[Kind]>;

const LOADERS: { [Kind in Task]: () => Promise<Loader<Kind>> } = {
  chat: async () => loadChat,
  function: async () => loadFunction,
  detect: async () => (await import("./detect/index.js")).loadDetector,
  image: async () => (await import("./image/index.js")).loadImageGenerator,
  embed: async () => (await import("./embed/index.js")).loadEmbedder,
};

/** Sections of a bundle of functions that make it something more. */
const SECTIONS: readonly Task[] = ["detect", "embed"];

/** What a bundle is for. @throws TinywebError "bad-manifest" | "download-failed" | "hash-mismatch" | "aborted" */
export async function taskOf(url: string | URL, signal?: AbortSignal): Promise<Task> {
  const manifest = new Value(await fetchManifest(await folderUrl(url), undefined, { fetch: fetchAny, signal }));
  checkFormat(manifest);
  const named = manifest.at("task").text();
  const task = named === "function" ? (SECTIONS.find((section) => manifest.at(section).present) ?? named) : named;
  if (Object.hasOwn(LOADERS, task)) return task as Task;
  return manifest.at("task").fail(`"${task}" is not one of ${Object.keys(LOADERS).join(", ")}, which this library knows: update tinyweb`);
}

/**
 * Loads the bundle in a folder, whatever it is for: a chat, functions, detection, images, embeddings. `"generate" in model` and the like tell which; or ask for
 * a kind with `options.task`.
 * @param url the folder (it holds manifest.json)
 * @throws TinywebError "bad-manifest" (also for a task or a format that is newer than this library) | "bad-argument" (it is not of the
 *   kind that was asked for) | what that kind's own loader throws
 */
export async function load<Kind extends Task>(url: string | URL, options: AnyLoadOptions<Kind> & { task: Kind }): Promise<Models[Kind]>;
export async function load(url: string | URL, options?: AnyLoadOptions | null): Promise<Model>;
export async function load(url: string | URL, given?: AnyLoadOptions | null): Promise<Model> {
  const { task: asked, ...options } = loadOptions(given, "load()", ["task", "oneAtATime"]);
  if (asked !== undefined) checkOneOf("task", asked, Object.keys(LOADERS));
  const task = await taskOf(url, options.signal);
  if (asked !== undefined && asked !== task) throw badArgument(`This bundle's task is ${task}, not ${asked}.`);
  return (await LOADERS[task]())(await folderUrl(url), options);
}
