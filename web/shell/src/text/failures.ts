/** Errors of the runtime, told to people: what happened, what it means, what can be done. */

import type { BackendChoice } from "../model-api";

export type Remedy = "retry" | "use-wasm" | "use-wasm-single" | "smaller" | "reload";

export interface Failure {
  /** The runtime's code, or "unknown". */
  code: string;
  title: string;
  text: string;
  /** The error's own words, where they add something. */
  detail: string;
  /** In the order of the buttons. */
  remedies: Remedy[];
}

export function errorCode(error: unknown): string {
  if (typeof error === "object" && error !== null) {
    const { code, name } = error as { code?: unknown; name?: unknown };
    if (typeof code === "string") return code;
    if (name === "AbortError") return "aborted";
  }
  return "unknown";
}

export function errorText(error: unknown): string {
  if (error instanceof Error) return error.message || error.name;
  if (typeof error === "object" && error !== null && "message" in error && typeof error.message === "string") {
    return error.message;
  }
  return String(error);
}

/** How a page speaks of what it keeps for its reader, for the middle of a sentence. */
export interface Words {
  /** "your conversation is kept" */
  kept: string;
  /** What brings a lost model back: "your next message" */
  next: string;
}

interface Telling {
  title: string;
  text: string;
  remedies: Remedy[];
}

const OFFLINE: Telling = {
  title: "You are offline",
  text: "The model could not be downloaded. It goes on by itself as soon as there is a connection again.",
  remedies: ["retry"],
};

/** Where the reader, or the address, asks for WebGPU and nothing else. */
const NO_GPU: Telling = {
  title: "The GPU cannot be used",
  text: "The browser gives this page no GPU for the model, or no longer does. {Kept}. The CPU can do the work.",
  remedies: ["use-wasm", "retry"],
};

const TELLINGS: Record<string, Telling> = {
  "download-failed": {
    title: "The download did not finish",
    text: "What has arrived so far is kept. Check the connection and try again. If that does not help, a file is missing where the page comes from.",
    remedies: ["retry"],
  },
  "hash-mismatch": {
    title: "A file arrived damaged",
    text: "Part of the model is not what it should be, even after fetching it once more. Trying again later may help.",
    remedies: ["retry"],
  },
  "bad-manifest": {
    title: "This model cannot be read",
    text: "Its files are incomplete or made for another version of this page.",
    remedies: ["retry"],
  },
  "out-of-memory": {
    title: "Not enough memory",
    text: "This device has too little free memory for the model. Closing other tabs and apps may help.",
    remedies: ["retry", "smaller", "use-wasm"],
  },
  "no-backend": {
    title: "This browser cannot run the model",
    text: "It needs WebGPU or WebAssembly with SIMD. A current version of Chrome, Edge, Firefox or Safari has them.",
    remedies: ["retry"],
  },
  "compile-failed": {
    title: "The model could not be prepared here",
    text: "The browser refused part of its program. The CPU may manage what the GPU does not.",
    remedies: ["use-wasm", "retry"],
  },
  "gpu-error": {
    title: "The GPU reported an error",
    text: "{Kept}. Try again, or let the CPU do the work.",
    remedies: ["retry", "use-wasm"],
  },
  "device-lost": {
    title: "The GPU was lost",
    text: "The browser took it away and it did not come back. {Kept}.",
    remedies: ["retry", "use-wasm"],
  },
  "worker-failed": {
    title: "The model stopped working",
    text: "Its background worker could not start or has crashed. {Kept}.",
    remedies: ["retry", "reload"],
  },
  interrupted: {
    title: "Last time this page was ended in the middle",
    text: "Perhaps this device has too little memory for the model as it was loaded. {Kept}.",
    remedies: ["smaller", "use-wasm-single", "retry"],
  },
  storage: {
    title: "The browser's storage failed",
    text: "The model could not be kept on this device. Freeing some space may help.",
    remedies: ["retry"],
  },
};

const UNKNOWN: Telling = {
  title: "Something went wrong",
  text: "{Kept}. Trying again often helps.",
  remedies: ["retry", "reload"],
};

function tell(telling: Telling, { kept }: Words): Telling {
  const text = telling.text.replace("{Kept}", kept.charAt(0).toUpperCase() + kept.slice(1));
  return { ...telling, text, remedies: [...telling.remedies] };
}

/** Why the model could not be loaded. @param backend the one that was asked for */
export function describeFailure(error: unknown, words: Words, online = true, backend: BackendChoice = "auto"): Failure {
  const code = errorCode(error);
  const offline = code === "download-failed" && !online;
  const noGpu = code === "no-backend" && backend === "webgpu";
  const telling = offline ? OFFLINE : noGpu ? NO_GPU : (TELLINGS[code] ?? UNKNOWN);
  return { code, ...tell(telling, words), detail: errorText(error) };
}

/**
 * Why something that was asked of the model broke off, in a sentence or two.
 * @param what begins the sentence for errors without words of their own: "The answer broke off"
 */
export function describeBreak(error: unknown, words: Words, what: string): string {
  const telling = TELLINGS[errorCode(error)];
  if (telling === undefined) return `${what}: ${errorText(error)}`;
  const { title, text } = tell(telling, words);
  return `${title}. ${text}`;
}
