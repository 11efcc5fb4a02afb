import { defineConfig } from "vite";
import { pageConfig } from "../shell/vite";

export default defineConfig(
  pageConfig(import.meta.url, {
    task: "function",
    app: "tinyfunction",
    name: "TinyFunction",
    description: "Runs a model on what you give it and shows what comes out, wholly in your browser.",
  }),
);
