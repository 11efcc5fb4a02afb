// Compiles WGSL modules (a JSON list on stdin) with Dawn's null backend, which has all features and runs nothing; prints
// what is wrong with each, as a JSON list of texts. It lists no configurations of subgroup matrices, so that pipelines with
// such are refused for that reason alone.
import { text } from "node:stream/consumers";
import { create, globals } from "webgpu";

Object.assign(globalThis, globals);
const gpu = create(["backend=null", "enable-dawn-features=allow_unsafe_apis"]);
const adapter = await gpu.requestAdapter();
const requiredFeatures = ["shader-f16", "subgroups", "chromium-experimental-subgroup-matrix"];
const device = await adapter.requestDevice({ requiredFeatures });
const wrong = [];
for (const code of JSON.parse(await text(process.stdin))) {
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code });
  const messages = (await module.getCompilationInfo()).messages.map((m) => `line ${m.lineNum}: ${m.message}`);
  if (messages.length === 0) device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
  const error = await device.popErrorScope();
  wrong.push(messages.join("\n") || error?.message || "");
}
console.log(JSON.stringify(wrong));
process.exit(0); // Dawn keeps its threads
