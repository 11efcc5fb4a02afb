// Builds the library's files; their types are tsc's. usage: node scripts/build.mjs [FOLDER] [--sourcemap]        FOLDER: dist by default
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "rolldown";
import { Notices } from "../../shell/licenses.mjs";
import { FILES, HOMES, TYPES } from "./files.mjs";
import { ownNames, plainTokenTypes, privateNames } from "./shrink.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const at = (path) => resolve(root, path);
const folder = at(process.argv[2] ?? "dist");
const homes = new Map(Object.entries(HOMES).map(([source, file]) => [at(source), file]));

/** Imports of a module that another file holds become imports of that file. The worker is complete by itself. */
const elsewhere = (own) => ({
  name: "tinyweb-files",
  async resolveId(id, importer) {
    if (!importer || own === "tinyweb-worker.js") return undefined;
    const found = await this.resolve(id, importer, { skipSelf: true });
    const file = found && homes.get(found.id);
    return file && file !== own ? { id: `./${file}`, external: true } : undefined;
  },
});

const notices = new Notices();
const licenses = { name: "tinyweb-licenses", generateBundle: (_options, bundle) => notices.add(bundle) };

/** @param minify whether, or how; @param write where to: nowhere by default */
const bundle = (file, minify, write = {}) =>
  build({
    cwd: root,
    input: at(FILES[file]),
    platform: "browser",
    logLevel: "warn",
    plugins: [elsewhere(file), plainTokenTypes, licenses],
    tsconfig: at("tsconfig.build.json"),
    resolve: { extensionAlias: { ".js": [".ts", ".js"] } },
    transform: { target: "es2022" },
    preserveEntrySignatures: "strict",
    // Frozen tables that nobody reads are left out; of the libraries, what only reads properties.
    treeshake: { manualPureFunctions: ["Object.freeze"], propertyReadSideEffects: false, unknownGlobalSideEffects: false },
    ...write,
    output: { ...write.output, format: "es", entryFileNames: file, codeSplitting: false, minify, comments: !file.endsWith("worker.js") },
  });

rmSync(folder, { recursive: true, force: true });
const hidden = privateNames(readdirSync(at("src"), { recursive: true }).filter((file) => file.endsWith(".ts")).map((file) => readFileSync(at(`src/${file}`), "utf8")));
for (const file of Object.keys(FILES)) {
  const { output: [whole] } = await bundle(file, false, { write: false });
  // The worker is a program, which nothing is taken from; of the others, pages and the other files take what is not private.
  const short = ownNames(whole.code).filter((name) => file === "tinyweb-worker.js" || hidden.has(name));
  const minify = short.length === 0 || { mangleProps: { include: new RegExp(`^(${short.join("|")})$`) } };
  await bundle(file, minify, { output: { dir: folder, sourcemap: process.argv.includes("--sourcemap") } });
}
// Beside each file the types of what it exports, where compilers look for them.
for (const [file, types] of Object.entries(TYPES)) {
  writeFileSync(resolve(folder, file.replace(/js$/u, "d.ts")), `export * from "./types/${types}.js";\n`);
}
writeFileSync(resolve(folder, "licenses.txt"), notices.text());
