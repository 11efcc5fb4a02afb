import { defineConfig } from "vitest/config";
import { pageTests } from "../shell/vitest";

export default defineConfig(pageTests());
