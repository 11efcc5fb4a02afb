import { defineConfig } from "vite";
import { pageConfig } from "../shell/vite";

export default defineConfig(
  pageConfig(import.meta.url, {
    task: "embed",
    app: "tinysearch",
    name: "TinySearch",
    description: "Finds what your texts say, in other words too, with a model that runs wholly in your browser.",
  }),
);
