/** What a report of a problem should say of the page, the model, the device and the browser. Nothing that the reader wrote. */

import type { AnyShell } from "./shell";
import { measureKept } from "./store/kept";
import { backendName, formatBytes, formatStart, modelSizes, type ModelSizes } from "./text/format";

/** A label and its value. */
export type AboutRow = readonly [label: string, value: string];

/** What a page says of its model first. */
export function modelRows(name: string | undefined, sizes: ModelSizes): AboutRow[] {
  const parts = modelSizes(sizes);
  const rows: AboutRow[] = [];
  if (name !== undefined) rows.push(["Model", name]);
  if (parts.length > 0) rows.push(["Size", parts.join(", ")]);
  if (sizes.fidelity !== undefined) rows.push(["Beside f32", sizes.fidelity.replaceAll(" %", "\u00a0%")]);
  return rows;
}

/** Limits of the GPU that models of this kind run into. */
const LIMITS = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
] as const;

/** The GPU as the page sees it; empty where there is none. */
export async function gpuRows(): Promise<AboutRow[]> {
  const gpu = (navigator as { gpu?: GpuLike }).gpu;
  const adapter = await gpu?.requestAdapter().catch(() => null);
  if (!adapter) return [["GPU", gpu === undefined ? "no WebGPU in this browser or at this address" : "none that WebGPU could use"]];
  const { info, limits, features } = adapter;
  const name = info?.description || [info?.vendor, info?.architecture, info?.device].filter(Boolean).join(" ") || "unnamed";
  const limit = (key: (typeof LIMITS)[number]): string => {
    const value = limits[key] ?? 0;
    return key.endsWith("PerWorkgroup") ? `${value} invocations` : formatBytes(value);
  };
  return [
    ["GPU", name],
    [
      "GPU limits",
      `buffers ${limit("maxBufferSize")}, bindings ${limit("maxStorageBufferBindingSize")}, workgroups ${limit("maxComputeInvocationsPerWorkgroup")} and ${limit("maxComputeWorkgroupStorageSize")}`,
    ],
    ["GPU features", [...features].filter((feature) => /f16|subgroup|timestamp/u.test(feature)).join(", ") || "none of interest"],
  ];
}

interface GpuLike {
  requestAdapter(): Promise<{
    info?: { vendor?: string; architecture?: string; device?: string; description?: string };
    limits: Record<string, number | undefined>;
    features: Iterable<string>;
  } | null>;
}

/** How the model runs here. */
export function runningRows(shell: AnyShell): AboutRow[] {
  const { engine } = shell.model.state;
  if (engine.phase === "failed") return [["Failed", `${engine.failure.code}: ${engine.failure.detail}`]];
  if (engine.phase === "loading") return [["Runs on", "loading"]];
  const { info } = engine;
  const rows: AboutRow[] = [];
  const adapter = info.backend === "webgpu" ? (info.adapter ?? "") : "";
  rows.push(["Runs on", [backendName(info.backend, info.adapter), adapter].filter((part) => part !== "").join(", ")]);
  if (info.memoryBytes != null && info.memoryBytes > 0) rows.push(["Memory", formatBytes(info.memoryBytes)]);
  if (info.start) rows.push(["Ready", formatStart(info.start)]);
  for (const { backend, reason } of info.fallbacks ?? []) rows.push([`Not ${backendName(backend)}`, reason]);
  return rows;
}

export function deviceRows(): AboutRow[] {
  const { hardwareConcurrency, deviceMemory } = navigator as Navigator & { deviceMemory?: number };
  return [
    ["Device", `${hardwareConcurrency} CPU cores${deviceMemory === undefined ? "" : `, ${deviceMemory} GB of memory or more`}`],
    ["Page", `${isSecureContext ? "secure" : "not secure (plain http)"}, ${crossOriginIsolated ? "isolated" : "not isolated"}`],
    ["Browser", navigator.userAgent],
  ];
}

export function versionRows(shell: AnyShell): AboutRow[] {
  const { facts } = shell.site;
  if (facts == null) return [];
  return [
    ["tinyweb", facts.tinyweb],
    ["Export", `${facts.hash}, bundle format ${facts.format}`],
  ];
}

/** All of it as lines of text. @param own the page's own rows */
export async function diagnostics(shell: AnyShell, own: readonly AboutRow[]): Promise<string> {
  const kept = await measureKept(shell.site.facts?.bundles ?? []);
  const stored: AboutRow = [
    "Stored",
    `model ${formatBytes(kept.model)}, in all ${kept.usage === undefined ? "unknown" : formatBytes(kept.usage)} of ${kept.quota === undefined ? "unknown" : formatBytes(kept.quota)}; offline ${shell.site.offline}; settings and content ${shell.storage.lasting ? "kept" : "not kept"}`,
  ];
  const rows = [...own, ...versionRows(shell), ...runningRows(shell), ...(await gpuRows()), ...deviceRows(), stored];
  return [shell.title, ...rows.map(([label, value]) => `${label}: ${value}`)].join("\n");
}
