/** Fetching the generated loader. */

import type { LoadedModel, ModelModule } from "../model-api";
import { errorText } from "../text/failures";

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
export type ModelImporter<Model extends LoadedModel> = (attempt: number) => Promise<ModelModule<Model>>;

/** Imports `model/model.js` next to the page. */
export async function importModel<Model extends LoadedModel>(attempt: number): Promise<ModelModule<Model>> {
  const url = new URL("./model/model.js", document.baseURI);
  // Some browsers remember a failed import for as long as the page lives.
  if (attempt > 0) url.searchParams.set("attempt", attempt.toString());
  let module: Partial<ModelModule<Model>>;
  try {
    module = (await import(/* @vite-ignore */ url.href)) as Partial<ModelModule<Model>>;
  } catch (error) {
    throw new PageError("download-failed", `${url.pathname} could not be loaded: ${errorText(error)}`);
  }
  if (typeof module.load !== "function") throw new PageError("bad-manifest", `${url.pathname} has no function "load".`);
  return module as ModelModule<Model>;
}
