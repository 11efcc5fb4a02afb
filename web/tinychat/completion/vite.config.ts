import { defineConfig } from "vite";
import { pageConfig } from "../../shell/vite";

/** The page of base models, which continue a text: what it shares with the chat is in ../src. */
export default defineConfig(
  pageConfig(import.meta.url, {
    task: "chat",
    app: "tinytext",
    name: "TinyText",
    description: "A small language model that continues your text, wholly in your browser.",
  }),
);
