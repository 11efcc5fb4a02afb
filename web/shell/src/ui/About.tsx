/** The about box: what is known of the model, of how it runs here, and of the device. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { deviceRows, diagnostics, gpuRows, runningRows, versionRows, type AboutRow } from "../diagnostics";
import type { AnyShell } from "../shell";
import { Dialog, DialogHead } from "./Dialog";
import { useCopy } from "./hooks";
import { Icon } from "./icons";

interface AboutProps {
  shell: AnyShell;
  /** The page's own. */
  rows: readonly AboutRow[];
  onClose: () => void;
}

export function About({ shell, rows, onClose }: AboutProps): JSX.Element {
  const [gpu, setGpu] = useState<readonly AboutRow[]>([]);
  useEffect(() => void gpuRows().then(setGpu), []);
  const [copied, copy] = useCopy();
  const all = [...rows, ...runningRows(shell), ...versionRows(shell), ...gpu, ...deviceRows()];
  return (
    <Dialog kind="sheet" labelledBy="about-title" testId="about-dialog" onClose={onClose}>
      <DialogHead id="about-title" title={`About ${shell.title}`} closeTestId="close-about" closeLabel="Close about" onClose={onClose} />
      <div class="dialog-content">
        <section>
          <p>Made with tinyweb. The model runs wholly in this browser: nothing of yours ever leaves this device.</p>
          <dl class="figures" data-testid="about">
            {all.map(([label, value]) => (
              <div key={label}>
                <dt>{label}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        </section>
        <section class="dialog-actions">
          <button type="button" class="button" data-testid="copy-diagnostics" onClick={() => void diagnostics(shell, rows).then(copy)}>
            <Icon name={copied ? "check" : "copy"} />
            <span aria-live="polite">{copied ? "Copied" : "Copy diagnostics"}</span>
          </button>
          <a class="button" data-testid="licenses" href="./licenses.txt" target="_blank" rel="noopener">
            <Icon name="file" />
            Licences
          </a>
        </section>
        <p class="hint">The copy holds what stands above and how much is stored, and nothing that you wrote or opened.</p>
      </div>
    </Dialog>
  );
}
