import { defineConfig } from "vite";
import { pageConfig } from "../shell/vite";

export default defineConfig(
  pageConfig(import.meta.url, {
    task: "image",
    app: "tinypaint",
    name: "TinyPaint",
    description: "Pictures from words, painted by a model that runs wholly in your browser.",
  }),
);
