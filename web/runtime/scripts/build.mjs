// Builds the library's files; their types are tsc's. usage: node scripts/build.mjs [FOLDER] [--sourcemap]        FOLDER: dist by default
import { rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "rolldown";
import { Notices } from "../../shell/licenses.mjs";
import { FILES, HOMES, TYPES } from "./files.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const at = (path) => resolve(root, path);
const folder = at(process.argv[2] ?? "dist");
const homes = new Map(Object.entries(HOMES).map(([source, file]) => [at(source), file]));

/** Imports of a module that another file holds become imports of that file. A worker is complete by itself. */
const elsewhere = (own) => ({
  name: "tinyweb-files",
  async resolveId(id, importer) {
    if (!importer || own.endsWith("worker.js")) return undefined;
    const found = await this.resolve(id, importer, { skipSelf: true });
    const file = found && homes.get(found.id);
    return file && file !== own ? { id: `./${file}`, external: true } : undefined;
  },
});

const notices = new Notices();
const licenses = { name: "tinyweb-licenses", generateBundle: (_options, bundle) => notices.add(bundle) };

/** Writes a file of the library. */
const bundle = (file) =>
  build({
    cwd: root,
    input: at(FILES[file]),
    platform: "browser",
    logLevel: "warn",
    plugins: [elsewhere(file), licenses],
    tsconfig: at("tsconfig.build.json"),
    resolve: { extensionAlias: { ".js": [".ts", ".js"] } },
    transform: { target: "es2022" },
    preserveEntrySignatures: "strict",
    // Frozen tables that nobody reads are left out; of the libraries, what only reads properties.
    treeshake: { manualPureFunctions: ["Object.freeze"], propertyReadSideEffects: false, unknownGlobalSideEffects: false },
    output: {
      dir: folder,
      format: "es",
      entryFileNames: file,
      codeSplitting: false,
      minify: true,
      comments: !file.endsWith("worker.js"),
      sourcemap: process.argv.includes("--sourcemap"),
    },
  });

rmSync(folder, { recursive: true, force: true });
for (const file of Object.keys(FILES)) await bundle(file);
// Beside each file the types of what it exports, where compilers look for them.
for (const [file, types] of Object.entries(TYPES)) {
  writeFileSync(resolve(folder, file.replace(/js$/u, "d.ts")), `export * from "./types/${types}.js";\n`);
}
writeFileSync(resolve(folder, "licenses.txt"), notices.text());
