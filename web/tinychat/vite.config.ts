import { defineConfig } from "vite";
import { pageConfig } from "../shell/vite";

export default defineConfig(
  pageConfig(import.meta.url, {
    task: "chat",
    app: "tinychat",
    name: "TinyChat",
    description: "A chat with a small language model that runs wholly in your browser.",
  }),
);
