import { defineConfig } from "vite";
import { pageConfig } from "../shell/vite";

export default defineConfig(
  pageConfig(import.meta.url, {
    task: "detect",
    app: "tinydetect",
    name: "TinyYOLO",
    description: "Finds things in pictures, videos and before the camera, wholly in your browser.",
  }),
);
