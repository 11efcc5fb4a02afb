// Prints what a bundler makes of a page that imports one thing of the library: bytes gzipped, without the worker.
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { rolldown } from "rolldown";

const IMPORTS = {
  loadChat: "tinyweb.js",
  loadDetector: "tinyweb-detect.js",
  loadImageGenerator: "tinyweb-image.js",
  loadEmbedder: "tinyweb-embed.js",
};
const PAGE = "page";

for (const [name, file] of Object.entries(IMPORTS)) {
  const library = fileURLToPath(new URL(`../dist/${file}`, import.meta.url));
  const page = {
    name: PAGE,
    resolveId: (id) => (id === PAGE ? id : null),
    load: (id) => (id === PAGE ? `import { ${name} } from ${JSON.stringify(library)}; globalThis.used = ${name};` : null),
  };
  const made = await rolldown({ input: PAGE, external: [/^node:/u, /tinyweb-node/u], plugins: [page] });
  const { output } = await made.generate({ minify: true });
  const bytes = output.reduce((sum, chunk) => sum + gzipSync(chunk.code ?? chunk.source, { level: 9 }).length, 0);
  console.log(`${name} ${bytes}`);
}
