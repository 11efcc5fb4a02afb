/** The files of a bundle (docs/bundle.md): each is checked against the manifest, and the manifest against the loader, before anything reads it. */

import type { Value } from "./check.js";
import { fetchSmall, type DownloadSettings } from "./download.js";
import { describe, TinywebError } from "./errors.js";
import { sha256Hex } from "./hash.js";

/** What a file must be. */
export interface FileRow {
  bytes: number;
  sha256: string;
}

/** Section `integrity` of a manifest: by name, relative to the bundle. */
export type Integrity = ReadonlyMap<string, FileRow>;

export const MANIFEST = "manifest.json";
const VERSION = 2;
const MAX_FILE = 256 * 2 ** 20;
const ADVICE =
  "The site is being updated, was uploaded only in part, or its files are changed on the way: try again in a few minutes; " +
  "if that does not help, the site's owner must upload all files of one export.";

/** @throws TinywebError "bad-manifest" where it is no manifest of the version that this library reads */
export function checkFormat(manifest: Value): void {
  manifest.at("format").oneOf("tinyweb-bundle");
  const version = manifest.at("version").integer();
  if (version !== VERSION) {
    manifest
      .at("version")
      .fail(`is ${version}, this library reads version ${VERSION}: ${version > VERSION ? "update tinyweb" : "export the model again"}`);
  }
}

/** @throws TinywebError "bad-manifest", also where it is no manifest of this version */
export function parseIntegrity(manifest: Value): Integrity {
  checkFormat(manifest);
  return manifest.at("integrity").map((row) => ({ bytes: row.at("bytes").integer(), sha256: row.at("sha256").hash() }));
}

/** What came in place of a file, in words. */
const mismatch = (name: string, expected: string, got: string): TinywebError =>
  new TinywebError("hash-mismatch", `${name} is not the file that belongs here: expected ${expected}, got ${got}. ${ADVICE}`);

const hashed = (sha256: string): string => `SHA-256 ${sha256.slice(0, 12)}…`;

/** The JSON of manifest.json. @param sha256 of the manifest that belongs to the loader, where there is a loader */
export async function fetchManifest(base: URL, sha256: string | undefined, settings: DownloadSettings): Promise<unknown> {
  const bytes = await fetchChecked(base, MANIFEST, settings, async (content) => {
    const got = await sha256Hex(content);
    if (sha256 === undefined || got === sha256) return undefined;
    return mismatch(MANIFEST, `what model.js was exported with (${hashed(sha256)})`, `${content.length} bytes (${hashed(got)})`);
  });
  return parseJson(bytes, MANIFEST);
}

/** A file of the bundle. @throws TinywebError "hash-mismatch" | "download-failed" | "bad-manifest" (it has no hash) | "aborted" */
export async function fetchFile(
  base: URL,
  name: string,
  integrity: Integrity,
  settings: DownloadSettings,
): Promise<Uint8Array<ArrayBuffer>> {
  const row = integrity.get(name);
  if (!row) throw new TinywebError("bad-manifest", `${MANIFEST}: integrity: has no row for ${name}: export the model again`);
  return fetchChecked(base, name, settings, async (content) => wrong(name, row, content), Math.min(row.bytes, MAX_FILE));
}

/** Why the content is not the file's; undefined where it is. */
export async function wrong(name: string, row: FileRow, content: Uint8Array<ArrayBuffer>): Promise<TinywebError | undefined> {
  return differs(name, row, { bytes: content.length, sha256: await sha256Hex(content) });
}

/** Why what came is not the file; undefined where it is. */
export function differs(name: string, row: FileRow, came: FileRow): TinywebError | undefined {
  if (came.bytes === row.bytes && came.sha256 === row.sha256) return undefined;
  const [expected, got] = [row, came].map(({ bytes, sha256 }) => `${bytes} bytes (${hashed(sha256)})`) as [string, string];
  return mismatch(name, expected, got);
}

/** A file that is wrong is fetched once more, past the browser's cache. */
async function fetchChecked(
  base: URL,
  name: string,
  settings: DownloadSettings,
  check: (content: Uint8Array<ArrayBuffer>) => Promise<TinywebError | undefined>,
  expected?: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const url = new URL(name, base).href;
  const attempt = async (mode: RequestCache): Promise<Uint8Array<ArrayBuffer>> => {
    const content = await fetchSmall(url, MAX_FILE, settings, mode, expected);
    const failure = await check(content);
    if (failure) throw failure;
    return content;
  };
  try {
    return await attempt("no-cache");
  } catch (error) {
    if ((error as TinywebError).code !== "hash-mismatch") throw error;
    return attempt("reload");
  }
}

const readJson = (bytes: Uint8Array<ArrayBuffer>): unknown => JSON.parse(new TextDecoder().decode(bytes));

/** @param read throws where the bytes are no JSON */
export function parseJson(bytes: Uint8Array<ArrayBuffer>, name: string, read = readJson): unknown {
  try {
    return read(bytes);
  } catch (error) {
    throw new TinywebError("bad-manifest", `${name} is not valid JSON: ${describe(error)}`, error);
  }
}
