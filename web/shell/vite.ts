/** How every page is built: its head, its policy, its icons and web manifest, and a pretended model while developing. */

import { createReadStream, existsSync, readFileSync } from "node:fs";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import { minifySync, type HtmlTagDescriptor, type Plugin, type UserConfig } from "vite";
import { Notices } from "./licenses.mjs";

export type Task = "chat" | "detect" | "image" | "embed" | "function";

export interface PageOptions {
  /** What `tinyweb export TASK` the page is for; it also says which icons the page has. */
  task: Task;
  /** The page's own name in storage: "tinychat". The same as in `openShell`. */
  app: string;
  /** On the home screen and in the tab until the page knows better: "TinyChat". */
  name: string;
  /** One sentence. */
  description: string;
}

/** What a page may do: nothing from elsewhere, no script inline, no eval but that of WebAssembly. */
const POLICY = [
  "default-src 'self'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "media-src 'self' blob:",
  "connect-src 'self'",
  "worker-src 'self'",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");

const BACKGROUND = "#f8f8f5"; // --bg of styles/base.css in light
const ICON_SIZES = [192, 512];

function webManifest({ name, description }: PageOptions): string {
  const icons = [
    { src: "icon.svg", sizes: "any", type: "image/svg+xml", purpose: "any" },
    // Square to the edge, with what matters in the middle: good as they are, and under whatever shape a system cuts.
    ...["any", "maskable"].flatMap((purpose) =>
      ICON_SIZES.map((size) => ({ src: `icon-${size}.png`, sizes: `${size}x${size}`, type: "image/png", purpose })),
    ),
  ];
  const manifest = {
    // No id: it would be relative to the origin, one for all sites there; without, the address of the site itself is taken.
    name,
    short_name: name,
    description,
    lang: "en",
    start_url: "./",
    scope: "./",
    display: "standalone",
    background_color: BACKGROUND,
    theme_color: BACKGROUND,
    icons,
  };
  return `${JSON.stringify(manifest, null, 2)}\n`;
}

/** The files beside the page's own that every page has, by name. */
function sharedFiles(options: PageOptions): Map<string, () => string | Uint8Array> {
  const read = (path: string) => (): Uint8Array => readFileSync(new URL(path, import.meta.url));
  return new Map<string, () => string | Uint8Array>([
    ["theme.js", read("public/theme.js")],
    ["sw.js", () => minifySync("sw.js", new TextDecoder().decode(read("public/sw.js")())).code], // the export writes what the site consists of in front
    ["site.json", () => "null\n"], // not exported: no worker
    ["manifest.webmanifest", () => webManifest(options)],
    ["icon.svg", read(`icons/${options.task}/icon.svg`)],
    ...[180, ...ICON_SIZES].map((size) => [`icon-${size}.png`, read(`icons/${options.task}/icon-${size}.png`)] as const),
  ]);
}

const TYPES: Record<string, string> = {
  ".js": "text/javascript",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
};

function sharedFilesPlugin(options: PageOptions): Plugin {
  const files = sharedFiles(options);
  return {
    name: "tinyweb-shared-files",
    generateBundle() {
      for (const [fileName, content] of files) this.emitFile({ type: "asset", fileName, source: content() });
    },
    configureServer(server) {
      server.middlewares.use((request, response, next) => {
        const name = new URL(request.url ?? "/", "http://localhost").pathname.slice(1);
        const content = files.get(name);
        if (content === undefined) return next();
        response.setHeader("Content-Type", TYPES[extname(name)] ?? "application/octet-stream");
        response.end(content());
      });
    },
  };
}

/** licenses.txt: whose code the page holds. The export adds what the library holds. */
function licensesPlugin(): Plugin {
  return {
    name: "tinyweb-licenses",
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        const notices = new Notices();
        notices.add(bundle);
        this.emitFile({ type: "asset", fileName: "licenses.txt", source: notices.text() });
      },
    },
  };
}

/** The head and body that all pages have; what is special to one stands in its index.html. */
function documentPlugin({ app, name, description }: PageOptions): Plugin {
  const meta = (attrs: Record<string, string>): HtmlTagDescriptor => ({ tag: "meta", attrs, injectTo: "head-prepend" });
  const link = (attrs: Record<string, string>): HtmlTagDescriptor => ({ tag: "link", attrs, injectTo: "head-prepend" });
  return {
    name: "tinyweb-document",
    transformIndexHtml: {
      order: "post",
      handler: (_html, { server }) => [
        meta({ charset: "utf-8" }),
        // While developing, Vite itself puts styles and scripts inline.
        ...(server === undefined ? [meta({ "http-equiv": "Content-Security-Policy", content: POLICY })] : []),
        meta({
          name: "viewport",
          content: "width=device-width, initial-scale=1, viewport-fit=cover, interactive-widget=resizes-content",
        }),
        { tag: "title", children: name, injectTo: "head-prepend" },
        meta({ name: "description", content: description }),
        meta({ name: "color-scheme", content: "light dark" }),
        meta({ name: "theme-color", content: BACKGROUND }),
        meta({ name: "apple-mobile-web-app-title", content: name }),
        meta({ name: "mobile-web-app-capable", content: "yes" }),
        meta({ name: "referrer", content: "no-referrer" }),
        link({ rel: "icon", href: "./icon.svg", type: "image/svg+xml" }),
        link({ rel: "apple-touch-icon", href: "./icon-180.png" }),
        link({ rel: "manifest", href: "./manifest.webmanifest" }),
        { tag: "script", attrs: { src: "./theme.js", "data-app": app }, injectTo: "head-prepend" },
        { tag: "div", attrs: { id: "app" }, injectTo: "body" },
        // What is seen while the page's script is on its way, or does not come.
        {
          tag: "p",
          attrs: { class: "opening" },
          children: `${name} is opening. Should nothing more appear, reload the page.`,
          injectTo: "body",
        },
        { tag: "noscript", children: `${name} runs its model in your browser, and needs JavaScript for it.`, injectTo: "body" },
      ],
    },
  };
}

/** `npm run dev` has no exported model beside the page: the pretended one of the tests stands in. */
function pretendedModel(root: string): Plugin {
  const file = `${root}/test/mock/model.js`;
  return {
    name: "tinyweb-pretended-model",
    apply: "serve",
    configureServer(server) {
      server.middlewares.use("/model/model.js", (_request, response, next) => {
        if (!existsSync(file)) return next();
        response.setHeader("Content-Type", "text/javascript");
        createReadStream(file).pipe(response);
      });
    },
  };
}

/**
 * The Vite configuration of a page. @param root `import.meta.url` of its vite.config.ts
 */
export function pageConfig(root: string, options: PageOptions): UserConfig {
  const folder = fileURLToPath(new URL(".", root)).replace(/\/$/u, "");
  return {
    root: folder,
    base: "./",
    publicDir: `${folder}/public`,
    plugins: [documentPlugin(options), sharedFilesPlugin(options), licensesPlugin(), pretendedModel(folder)],
    build: {
      target: ["chrome111", "edge111", "firefox121", "safari16.4"],
      // Every browser of the target preloads modules by itself.
      modulePreload: { polyfill: false },
      // data: addresses would be cached with the page anyway, and files keep the policy simple.
      assetsInlineLimit: 0,
      reportCompressedSize: false,
      rollupOptions: {
        output: {
          entryFileNames: "assets/page-[hash].js",
          chunkFileNames: "assets/[name]-[hash].js",
          assetFileNames: "assets/[name]-[hash][extname]",
        },
      },
    },
  };
}
