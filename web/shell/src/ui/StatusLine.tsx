/** The quiet line at the bottom: state, backend, figures. */

import type { JSX } from "preact";
import type { ModelInfo } from "../model-api";
import { pageState, type Engine } from "../model/loader";
import { backendName, formatBytes } from "../text/format";

export interface Figure {
  /** Its data-testid. */
  key: string;
  text: string;
  /** Left out on narrow screens. */
  unit?: string;
}

/** The first word tells the state. @param busy what the page is doing, such as "Answering…"; null when it does nothing */
export function statusText(engine: Engine<ModelInfo>, busy: string | null): string {
  if (engine.phase === "failed") return `Error: ${engine.failure.title}`;
  if (busy !== null) return busy;
  if (engine.phase === "ready") return "Ready";
  const { progress } = engine;
  if (progress?.phase !== "weights" || progress.totalBytes <= 0) return "Loading…";
  return `Loading… ${Math.floor((100 * Math.min(progress.loadedBytes, progress.totalBytes)) / progress.totalBytes)} %`;
}

interface StatusLineProps {
  engine: Engine<ModelInfo>;
  busy: string | null;
  /** The page's own, before those of memory and model. */
  figures: readonly Figure[];
}

export function StatusLine({ engine, busy, figures }: StatusLineProps): JSX.Element {
  const info = engine.phase === "ready" ? engine.info : null;
  const all: Figure[] = [...figures];
  if (info !== null) {
    const { memoryBytes, modelBytes } = info;
    if (memoryBytes != null && memoryBytes > 0) all.push({ key: "memory", text: formatBytes(memoryBytes), unit: "memory" });
    if (modelBytes != null && modelBytes > 0) all.push({ key: "model-size", text: formatBytes(modelBytes), unit: "model" });
  }
  return (
    <p class="status-line">
      <span data-testid="status">
        <span class={`status-dot dot-${pageState(engine, busy !== null)}`} />
        {statusText(engine, busy)}
      </span>
      {info !== null && (
        <span class="figure" data-testid="backend" data-backend={info.backend} title={info.adapter ?? ""}>
          {backendName(info.backend, info.adapter)}
        </span>
      )}
      {all.map(({ key, text, unit }) => (
        <span key={key} class={`figure figure-${key}`} data-testid={key}>
          {text}
          {unit !== undefined && <span class="figure-unit"> {unit}</span>}
        </span>
      ))}
    </p>
  );
}
