/** node count_rows.mjs SITE: outputs of the calls on standard input, a list of { name: [shape, numbers] } of floats. */

import { resolve } from "node:path";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";
import { install } from "../../tools/node_web.mjs";

install({ gpu: false });
const site = resolve(process.argv[2]);
const { loadFunction } = await import(pathToFileURL(`${site}/assets/tinyweb.js`).href);
const model = await loadFunction(pathToFileURL(`${site}/model/`), { backend: "wasm-single" });
const said = [];
for (const call of JSON.parse(await text(process.stdin))) {
  const given = Object.entries(call).map(([name, [shape, numbers]]) => [name, { data: Float32Array.from(numbers), shape }]);
  const found = await model.run(Object.fromEntries(given));
  said.push(Object.fromEntries(Object.entries(found).map(([name, a]) => [name, [a.shape, Array.from(a, Number)]])));
}
console.log(JSON.stringify({ kernels: model.info.functions.run.kernels, said }));
await model.dispose();
process.exit(0);
