import { createReadStream } from "node:fs";
import { defineConfig, type Plugin } from "vite";

/** In development Vite itself puts styles and scripts inline; only the built page carries the policy. */
function policyOnlyWhenBuilt(): Plugin {
  return {
    name: "policy-only-when-built",
    apply: "serve",
    transformIndexHtml: (html) => html.replace(/<meta\s+http-equiv="Content-Security-Policy"[^>]*>/u, ""),
  };
}

/** `npm run dev` has no exported model beside the page: the pretended one of the tests stands in. */
function pretendedModel(): Plugin {
  const file = new URL("./test/mock/model.js", import.meta.url);
  return {
    name: "pretended-model",
    apply: "serve",
    configureServer(server) {
      server.middlewares.use("/model/model.js", (_request, response) => {
        response.setHeader("Content-Type", "text/javascript");
        createReadStream(file).pipe(response);
      });
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [policyOnlyWhenBuilt(), pretendedModel()],
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
});
