// Compiles WGSL modules (a JSON list on stdin) with Dawn's null backend, which has all features and runs nothing; prints
// what is wrong with each, as a JSON list of texts.
import { text } from "node:stream/consumers";
import { create, globals } from "webgpu";

Object.assign(globalThis, globals);
const gpu = create(["backend=null"]);
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice({ requiredFeatures: ["shader-f16", "subgroups"] });
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
