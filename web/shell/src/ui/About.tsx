/** What is known of the model and of how it runs here. */

import type { JSX } from "preact";
import type { AnyShell } from "../shell";
import { backendName, formatBytes, formatStart } from "../text/format";

/** A label and its value. */
export type AboutRow = readonly [label: string, value: string];

function runningRows(shell: AnyShell): AboutRow[] {
  const { engine } = shell.model.state;
  if (engine.phase !== "ready") return [];
  const { info } = engine;
  const rows: AboutRow[] = [];
  const adapter = info.backend === "webgpu" ? (info.adapter ?? "") : "";
  rows.push(["Runs on", [backendName(info.backend, info.adapter), adapter].filter((part) => part !== "").join(", ")]);
  if (info.memoryBytes != null && info.memoryBytes > 0) rows.push(["Memory", formatBytes(info.memoryBytes)]);
  if (info.start) rows.push(["Ready", formatStart(info.start)]);
  return rows;
}

export function AboutFigures({ shell, rows }: { shell: AnyShell; rows: readonly AboutRow[] }): JSX.Element {
  return (
    <dl class="figures">
      {[...rows, ...runningRows(shell)].map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
