// A chat in Node: npm install tinyweb, then node node.mjs SITE/model "A question".
// WebAssembly is always there; with `npm install webgpu` beside it, WebGPU too.
import { load } from "tinyweb/load";
import { ChatSession } from "tinyweb/openai";

const [folder, question = "Hello!"] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node node.mjs SITE/model [QUESTION]");
  process.exit(2);
}
const chat = await load(folder, { task: "chat" });
console.error(`${chat.info.model} on ${chat.info.backend} (${chat.info.adapter})`);
const session = new ChatSession(chat, { temperature: 0, maxTokens: 200 });
for await (const { text } of session.send(question)) process.stdout.write(text);
process.stdout.write("\n");
await chat.dispose();
