import { afterEach, describe, expect, it, vi } from "vitest";
import type { Progress } from "../src/host.js";
import { expected, exportedWith, fakeBundle, sha256 } from "./fake-bundle.js";
import { broken, FakeServer } from "./fake-server.js";
import { alive } from "./node-thread.js";
import { collect, NO_GPU, openFake, type Opened } from "./open.js";

const opened: Opened[] = [];
const open: typeof openFake = async (...args) => {
  const one = await openFake(...args);
  opened.push(one);
  return one;
};
afterEach(() => opened.splice(0).forEach(({ host }) => host.dispose()));

const { notify } = Atomics;
const NO_MODULE = new Uint8Array([0, 97, 115, 109, 9, 9, 9, 9]);

describe("opening a bundle", () => {
  it("goes through its phases", async () => {
    const seen: Progress[] = [];
    await open({ onProgress: (progress) => seen.push(progress) });
    expect([...new Set(seen.map(({ phase }) => phase))]).toEqual(["manifest", "weights", "compile", "ready"]);
    expect(seen.at(-1)).toMatchObject({ loadedBytes: 1305, totalBytes: 1305, fromCache: false });
  });

  it("revalidates the small files, so that two exports never mix", async () => {
    const { server } = await open();
    const small = server.asked.filter(({ path }) => !path.startsWith("weights/"));
    expect(small.map(({ path }) => path).sort()).toEqual([
      "chat_template.jinja",
      "kernels/simd-threads.wasm",
      "manifest.json",
      "tokenizer.json",
      "tokenizer_config.json",
    ]);
    for (const { path, cache } of small) expect(cache, path).toBe("no-cache");
    expect(server.count("kernels/simd.wasm")).toBe(0);
  });

  it("tells why it passed over better backends", async () => {
    const { session } = await open({ platform: { ...NO_GPU, crossOriginIsolated: false } });
    expect(session.info.backend).toBe("wasm-single");
    expect(session.info.fallbacks.map(({ backend }) => backend)).toEqual(["webgpu", "wasm"]);
  });

  it.each([
    ["alone where waking the others takes longer than the work", 0.2, 8, 1],
    ["with the others again at times, a hundredth of the time", 0.2, 5000, 3],
    ["with all threads where the work is longer", 5, 8, 8],
  ])("computes %s", async (_, waking, calls, woken) => {
    const { engine } = (await open({ options: { backend: "wasm" } })).host;
    let clock = 0;
    const wake = vi.spyOn(Atomics, "notify").mockImplementation((...given) => {
      clock += waking;
      return notify(...given);
    });
    vi.spyOn(performance, "now").mockImplementation(() => (clock += 0.01));
    for (let call = 0; call < calls; call++) await engine.run(["decode"]);
    expect(wake).toHaveBeenCalledTimes(woken);
    vi.restoreAllMocks();
  });

  it("falls back when threads do not start", async () => {
    const { session } = await open({
      spawn: () => {
        throw new Error("no nested workers");
      },
    });
    expect(session.info.backend).toBe("wasm-single");
    expect(session.info.fallbacks.at(-1)).toEqual({ backend: "wasm", reason: expect.stringContaining("no nested workers") });
    expect(await collect(session.generateIds([1, 2], { maxTokens: 5 }))).toEqual(expected([1, 2], 5));
  });

  it("falls back when a module is refused", async () => {
    const bundle = exportedWith(fakeBundle(), "kernels/simd-threads.wasm", NO_MODULE);
    const { session } = await open({}, bundle);
    expect(session.info.backend).toBe("wasm-single");
    expect(session.info.fallbacks.at(-1)?.reason).toContain("simd-threads.wasm");
  });

  it("reports a module that does not fit its manifest", async () => {
    const bundle = fakeBundle((m) => (m.targets.wasm.entry_points.decode.function = "absent"));
    await expect(open({ options: { backend: "wasm-single" } }, bundle)).rejects.toMatchObject({
      code: "compile-failed",
      message: expect.stringContaining("absent"),
    });
    const pages = fakeBundle((m) => (m.targets.wasm.memory = { ...m.targets.wasm.memory, pages: 3 }));
    await expect(open({ options: { backend: "wasm-single" } }, pages)).rejects.toMatchObject({ code: "compile-failed" });
  });

  it("reports memory the browser cannot give", async () => {
    const bundle = fakeBundle((m) => (m.targets.wasm.memory = { ...m.targets.wasm.memory, pages: 65536 }));
    const Memory = WebAssembly.Memory;
    WebAssembly.Memory = class {
      constructor() {
        throw new RangeError("could not allocate memory");
      }
    } as never;
    try {
      await expect(open({ options: { backend: "wasm-single" } }, bundle)).rejects.toMatchObject({ code: "out-of-memory" });
    } finally {
      WebAssembly.Memory = Memory;
    }
  });

  it("says that nothing works, and why", async () => {
    const bundle = fakeBundle((m) => delete m.targets.wasm);
    await expect(open({}, bundle)).rejects.toMatchObject({ code: "no-backend", message: expect.stringContaining("no WebGPU") });
    await expect(open({ options: { backend: "webgpu" } })).rejects.toMatchObject({ code: "no-backend" });
  });

  it.each([
    ["manifest.json", "{", "bad-manifest"],
    ["tokenizer.json", "[", "bad-manifest"],
    ["manifest.json", undefined, "download-failed"],
    ["tokenizer.json", undefined, "download-failed"],
    ["kernels/simd-threads.wasm", undefined, "download-failed"],
    ["weights/002.bin", undefined, "download-failed"],
  ])("names %s when it is %j", async (file, content, code) => {
    const bundle = fakeBundle();
    if (content === undefined) bundle.files.delete(file);
    const other =
      content === undefined || file === "manifest.json" ? bundle : exportedWith(bundle, file, new TextEncoder().encode(content));
    if (content !== undefined) other.files.set(file, new TextEncoder().encode(content));
    await expect(open({}, other)).rejects.toMatchObject({ code, message: expect.stringContaining(file) });
    await expect.poll(() => alive.size).toBe(0);
  });

  it("stops when asked, and leaves nothing behind", async () => {
    const controller = new AbortController();
    const onProgress = ({ phase }: Progress): void => {
      if (phase === "weights") controller.abort();
    };
    await expect(open({ onProgress }, fakeBundle(), controller.signal)).rejects.toMatchObject({ code: "aborted" });
    await expect.poll(() => alive.size).toBe(0);
  });

  it("downloads weights once for several tries", async () => {
    const bundle = exportedWith(fakeBundle(), "kernels/simd-threads.wasm", NO_MODULE);
    const { server } = await open({}, bundle);
    for (const path of ["weights/000.bin", "weights/001.bin", "weights/002.bin"]) expect(server.count(path)).toBeLessThanOrEqual(2);
    expect(server.count("manifest.json")).toBe(1);
  });

  it.each([
    "manifest.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "kernels/simd-threads.wasm",
    "weights/001.bin",
  ])("does not begin with an altered, cut or absent %s that the host gives as it were right", async (file) => {
    const bundle = fakeBundle();
    const altered = (bytes: Uint8Array): Uint8Array => bytes.map((byte, i) => (i === bytes.length >> 1 ? byte ^ 1 : byte));
    const faults: [(bytes: Uint8Array) => Response, string][] = [
      [(bytes) => new Response(altered(bytes) as BodyInit), "SHA-256"],
      [(bytes) => new Response(new Uint8Array([...bytes, 10])), file.startsWith("weights") ? "longer than" : "SHA-256"],
      [
        () => new Response("<!doctype html>", { headers: { "content-type": "text/html; charset=utf-8", "content-length": "15" } }),
        "text/html came, 15 bytes",
      ],
    ];
    for (const [fault, says] of faults) {
      const server = new FakeServer(bundle.files);
      server.fault = ({ path }, _count, bytes) => (path === file ? fault(bytes) : undefined);
      const manifestSha256 = sha256(bundle.files.get("manifest.json") as Uint8Array);
      const opening = open({ fetch: server.fetch, options: { manifestSha256 } }, bundle);
      await expect(opening).rejects.toMatchObject({
        code: "hash-mismatch",
        message: expect.stringMatching(new RegExp(`${file}.*${says}`)),
      });
      expect(server.asked.filter(({ path }) => path === file).map(({ cache }) => cache)).toEqual([
        file.startsWith("weights") ? "default" : "no-cache",
        "reload",
      ]);
      await expect.poll(() => alive.size).toBe(0);
    }
    const server = new FakeServer(bundle.files); // once wrong, as from a browser's cache
    server.fault = ({ path }, count, bytes) => (path === file && count === 1 ? new Response(altered(bytes) as BodyInit) : undefined);
    const manifestSha256 = sha256(bundle.files.get("manifest.json") as Uint8Array);
    const { session } = await open({ fetch: server.fetch, options: { manifestSha256 } }, bundle);
    expect(await collect(session.generateIds([3], { maxTokens: 2 }))).toEqual(expected([3], 2));
  });

  it("uses no file that the manifest has no hash of", async () => {
    const bundle = fakeBundle((m) => delete m.integrity["chat_template.jinja"]);
    await expect(open({}, bundle)).rejects.toMatchObject({
      code: "bad-manifest",
      message: expect.stringContaining("no row for chat_template.jinja"),
    });
  });

  it("retries a small file that broke off", async () => {
    const bundle = fakeBundle();
    const server = new FakeServer(bundle.files);
    server.fault = ({ path }, count, bytes) => (path === "tokenizer.json" && count === 1 ? broken(bytes.slice(0, 9)) : undefined);
    const { session } = await open({ fetch: server.fetch }, bundle);
    expect(server.count("tokenizer.json")).toBe(2);
    expect(await collect(session.generateIds([3], { maxTokens: 2 }))).toEqual(expected([3], 2));
  });

  it("does with the browser's cache while offline", async () => {
    const bundle = fakeBundle();
    const server = new FakeServer(bundle.files);
    server.fault = ({ cache }) => {
      if (cache === "no-cache") throw new TypeError("offline");
      return undefined;
    };
    const { session } = await open({ fetch: server.fetch }, bundle);
    expect(await collect(session.generateIds([3], { maxTokens: 2 }))).toEqual(expected([3], 2));
  });
});
