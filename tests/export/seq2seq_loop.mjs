/** node seq2seq_loop.mjs SITE COUNT: a text of COUNT ids for the features on standard input, as docs/onnx.md writes the loop. */

import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";
import { install } from "../../tools/node_web.mjs";

install({ gpu: false });
const site = resolve(process.argv[2]);
const { loadFunction } = await import(pathToFileURL(`${site}/assets/tinyweb.js`).href);
const { seq2seq } = JSON.parse(await readFile(`${site}/model/manifest.json`, "utf8"));
const model = await loadFunction(pathToFileURL(`${site}/model/`), { backend: "wasm" });

await model.run({ input_features: Float32Array.from(JSON.parse(await text(process.stdin))) }, { function: "encode", outputs: [] });
const given = [...seq2seq.begin];
const ids = [given.shift()];
while (ids.length < Math.min(seq2seq.room, Number(process.argv[3])) && !seq2seq.eos.includes(ids.at(-1))) {
  const { next } = await model.run({ ids: Int32Array.from(ids) }, { function: "decode", outputs: ["next"] });
  ids.push(given.shift() ?? next[0]);
}
console.log(JSON.stringify(ids));
await model.dispose();
process.exit(0);
