/** The lines that call the model, ready to copy. */

import { arrayName, count, dtypeName, shapeText } from "../data/arrays";
import type { FunctionFacts } from "../model-api";

const key = (name: string): string => (/^[\p{ID_Start}_$][\p{ID_Continue}$]*$/u.test(name) ? name : JSON.stringify(name));

/** @param one whether the bundle has no other function */
export function callCode({ name, inputs, outputs }: FunctionFacts, one: boolean): string {
  const lines = [`import { load } from "./model/model.js";`, "", "const model = await load();", "const outputs = await model.run(", "  {"];
  for (const { name: input, dtype, shape, sizes, texts } of inputs) {
    const note = `${shapeText(shape)}, ${dtypeName(dtype)}${dtype === "f16" ? ", as bits" : ""}`;
    const data =
      texts === undefined ? `new ${arrayName(dtype)}(${count(shape)})` : `Array(${count(shape)}).fill(${JSON.stringify(texts[0] ?? "")})`;
    lines.push(`    ${key(input)}: ${sizes === undefined ? data : `{ data: ${data}, shape: [${shape.join(", ")}] }`}, // ${note}`);
  }
  lines.push("  },");
  if (!one) lines.push(`  { function: ${JSON.stringify(name)} },`);
  lines.push(");");
  for (const { name: output, dtype, shape, texts } of outputs) {
    const place = key(output) === output ? `outputs.${output}` : `outputs[${JSON.stringify(output)}]`;
    if (texts !== undefined) lines.push(`${place}.data; // strings: ${shapeText(shape)}`);
    else lines.push(`${place}; // ${arrayName(dtype)}: ${shapeText(shape)}${dtype === "f16" ? ", halves as their bits" : ""}`);
  }
  return `${lines.join("\n")}\n`;
}
