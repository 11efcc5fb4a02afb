import { afterEach, expect, it } from "vitest";
import { FunctionModel } from "../src/client.js";
import { TinywebError } from "../src/errors.js";
import { FunctionSession, type Arrays, type Inputs } from "../src/function.js";
import { fakeFunction, threaded } from "./fake-function.js";
import { BASE } from "./fake-server.js";
import { LocalWorker } from "./local-worker.js";
import { openFake } from "./open.js";

/** Keeps the inputs of every call, as they are sent. */
class Spy extends LocalWorker {
  readonly sent: Inputs[] = [];
  override postMessage(message: unknown): void {
    const { call } = message as { call?: { inputs?: Inputs } };
    if (call?.inputs) this.sent.push(call.inputs);
    super.postMessage(message);
  }
}

const models: FunctionModel[] = [];
afterEach(async () => {
  for (const model of models.splice(0)) await model.dispose();
});

async function open(backend: "wasm" | "wasm-single", change = threaded): Promise<{ model: FunctionModel; worker: Spy }> {
  const worker = new Spy(fakeFunction(change));
  const model = await FunctionModel.open(worker, BASE, { backend, threads: 2 });
  models.push(model);
  return { model, worker };
}

const isShared = ({ x }: Inputs): boolean => (x as Float32Array<ArrayBufferLike>).buffer instanceof SharedArrayBuffer;
const x = Float32Array.of(1, -2, 3, 4);
const n = Int32Array.of(10);
const y = Float32Array.of(11, 6, 19, 26);

it("writes inputs where the worker reads them, if they share memory", async () => {
  const { model, worker } = await open("wasm");
  const given = { x: x.slice(), n };
  const run = model.run(given);
  given.x.fill(0); // a call has what was given
  expect(await run).toEqual({ y, positive: Uint8Array.of(1, 0, 1) });
  expect((await run.result).runMs).toBeGreaterThan(0);
  expect((await model.run({ n: Int32Array.of(0) }, { function: "run", outputs: ["y"] }))["y"]).toEqual(Float32Array.of(1, -4, 9, 16));
  expect((await model.run({ x: Float32Array.of(0, ...x).subarray(1), n }))["y"]).toEqual(y);
  expect(worker.sent.map((inputs) => ("x" in inputs ? isShared(inputs) : undefined))).toEqual([true, undefined, true]);
  const alone = await open("wasm-single");
  expect((await alone.model.run({ x, n }))["y"]).toEqual(y);
  expect(alone.worker.sent.map(isShared)).toEqual([false]);
});

it("sends inputs along where an earlier call may still read", async () => {
  const { model, worker } = await open("wasm");
  const runs = [0, 1, 2].map((k) => model.run({ x: x.map((value) => value + k), n }));
  expect((await Promise.all(runs)).map((outputs) => outputs["y"]?.[0])).toEqual([11, 12, 13]);
  expect(worker.sent.map(isShared)).toEqual([true, false, false]);
  expect((await model.run({}))["y"]?.[0]).toBe(13);
});

it("changes nothing for a call that is refused", async () => {
  const { model } = await open("wasm");
  await expect(model.run({ x })).rejects.toThrow('"n" is missing');
  await model.run({ x, n });
  const other = Float32Array.of(9, 9, 9, 9);
  for (const wrong of [{ n: Int32Array.of() }, { n: x }, { z: x }, { n: 5 }, { n: null }]) {
    await expect(model.run({ x: other, ...(wrong as unknown as Arrays) })).rejects.toMatchObject({ code: "bad-argument" });
  }
  await expect(model.run({ x: other }, { signal: AbortSignal.abort() })).rejects.toMatchObject({ code: "aborted" });
  await expect(model.run({ x: other }, { function: "go" })).rejects.toThrow('There is no function "go"');
  expect((await model.run({}))["y"]).toEqual(y);
  expect((await model.run({ x, n: undefined } as unknown as Arrays))["y"]).toEqual(y);
});

it("knows functions by name, where there are several", async () => {
  const { model, worker } = await open("wasm", (m) => {
    threaded(m);
    m.functions.again = { inputs: m.functions.run.inputs.slice(), outputs: m.functions.run.outputs.slice(0, 1) };
    for (const points of [m.targets.wasm.entry_points, m.targets.webgpu.variants.base.entry_points]) points.again = points.run;
  });
  expect(await model.run({ x, n }, { function: "again" })).toEqual({ y });
  await expect(model.run({ x, n })).rejects.toThrow("Say which function to run");
  expect(worker.sent.map(isShared)).toEqual([true, false]);
});

it("takes shared memory that is the caller's for what it is", async () => {
  const { host } = await openFake({ task: "function", options: { backend: "wasm", threads: 2 } }, fakeFunction(threaded));
  const session = new FunctionSession(host);
  const own = new Float32Array(new SharedArrayBuffer(16)) as unknown as Float32Array<ArrayBuffer>;
  own.set(x);
  expect((await session.run({ x: own, n })).outputs["y"]).toEqual(y);
  own.fill(0);
  expect((await session.run({ n })).outputs["y"]).toEqual(y);
  const { x: place } = session.places["run"] as { x: Float32Array };
  place.set(own);
  expect((await session.run(structuredClone({ x: place, n }))).outputs["y"]).toEqual(Float32Array.of(10, 10, 10, 10));
  host.dispose();
});

it("has what was given when the engine is replaced", async () => {
  const { host } = await openFake({ task: "function", options: { backend: "wasm", threads: 2 } }, fakeFunction(threaded));
  const session = new FunctionSession(host);
  const places = session.places[""] as { x: Float32Array; n: Int32Array };
  places.x.set(x);
  places.n.set(n);
  host.engine.step = () => Promise.reject(new TinywebError("wasm-trap", "It stopped."));
  expect((await session.run(structuredClone(places) as unknown as Arrays)).outputs["y"]).toEqual(y);
  expect(session.places["run"]?.["x"]?.buffer).not.toBe(places.x.buffer);
  host.dispose();
});
