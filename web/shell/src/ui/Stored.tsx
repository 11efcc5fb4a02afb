/** What is stored on this device, and deleting it: the model and the reader's own things apart. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { AnyShell } from "../shell";
import type { OfflineState, SiteBundle } from "../site";
import { deleteModel, measureKept, type Kept } from "../store/kept";
import { formatBytes } from "../text/format";
import { Confirm } from "./Fields";

/** Something of the reader's that a page keeps on the device. */
export interface PageData {
  /** Names it in data-testids: "delete-{key}". */
  key: string;
  /** "conversation", "picture" */
  one: string;
  /** "conversations", "pictures" */
  many: string;
  count: number;
  /** How much room they take, where the page knows. */
  bytes?(): number;
  clear(): void;
}

const OFFLINE: Record<OfflineState, string> = {
  ready: "opens without a network",
  preparing: "is being kept for use without a network…",
  failed: "could not be kept for use without a network",
  unavailable: "needs the network: here the browser cannot keep pages",
};

function capitalised(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function dataText(data: PageData): string {
  const { count, one, many } = data;
  if (count === 0) return "none";
  const bytes = data.bytes?.();
  return `${count} ${count === 1 ? one : many}${bytes === undefined ? "" : `, ${formatBytes(bytes)}`}`;
}

function ClearData({ data }: { data: PageData }): JSX.Element | null {
  const { key, one, many, count } = data;
  if (count === 0) return null;
  const what = count === 1 ? `the ${one}` : `all ${count} ${many}`;
  return <Confirm testId={`delete-${key}`} label={`Delete ${what}`} question={`Really delete ${what}?`} onConfirm={() => data.clear()} />;
}

interface StoredProps {
  shell: AnyShell;
  data: readonly PageData[];
}

export function Stored({ shell, data }: StoredProps): JSX.Element {
  const [kept, setKept] = useState<Kept | null>(null);
  const [deleted, setDeleted] = useState(false);
  const bundles: readonly SiteBundle[] = shell.site.facts?.bundles ?? [];
  const { phase } = shell.model.state.engine;
  const counts = data.map(({ count }) => count).join();
  useEffect(() => {
    let current = true;
    void measureKept(bundles).then((measured) => current && setKept(measured));
    return () => {
      current = false;
    };
  }, [bundles, phase, counts, deleted, shell.site.offline]);
  const rows: [key: string, label: string, value: string][] = [];
  if (kept !== null) {
    const again = deleted && kept.model === 0 ? "; the next visit downloads it again" : "";
    rows.push(["model", "Model", kept.model === 0 ? `not kept${again}` : formatBytes(kept.model)]);
  }
  rows.push(["page", "This page", OFFLINE[shell.site.offline]]);
  for (const each of data) rows.push([each.key, capitalised(each.many), dataText(each)]);
  if (kept !== null && kept.otherModels > 0)
    rows.push(["others", "Other models", `${formatBytes(kept.otherModels)}, of other pages at this address`]);
  if (kept?.usage !== undefined && kept.quota !== undefined) {
    rows.push(["usage", "In all", `${formatBytes(kept.usage)} of the ${formatBytes(kept.quota)} that the browser allows`]);
  }
  return (
    <section>
      <h3>Stored on this device</h3>
      <dl class="figures" data-testid="stored">
        {rows.map(([key, label, value]) => (
          <div key={key}>
            <dt>{label}</dt>
            <dd data-testid={`stored-${key}`}>{value}</dd>
          </div>
        ))}
      </dl>
      {!shell.storage.lasting && <p class="hint">This browser refuses to store anything: it lasts until the page is closed.</p>}
      <div class="dialog-actions">
        {kept !== null && kept.model > 0 && (
          <Confirm
            testId="delete-model"
            label="Delete the model"
            question={`Really delete ${formatBytes(kept.model)}?`}
            onConfirm={() => void deleteModel(bundles).then(() => setDeleted(true))}
          />
        )}
        {data.map((each) => (
          <ClearData key={each.key} data={each} />
        ))}
      </div>
    </section>
  );
}
