/** The settings of every page: appearance, the page's own, backend, what is stored, about. */

import type { ComponentChildren, JSX } from "preact";
import type { BackendChoice } from "../model-api";
import type { AnyShell } from "../shell";
import type { Theme } from "../store/settings";
import { AboutFigures, type AboutRow } from "./About";
import { Dialog, DialogHead } from "./Dialog";
import { Confirm, Radios, type Choice } from "./Fields";
import { Icon } from "./icons";

const THEME_CHOICES: readonly Choice<Theme>[] = [
  { value: "system", label: "System" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
];

const BACKEND_CHOICES: readonly Choice<BackendChoice>[] = [
  { value: "auto", label: "Automatic", hint: "The fastest that works here" },
  { value: "webgpu", label: "GPU", hint: "WebGPU" },
  { value: "wasm", label: "CPU", hint: "WASM, several threads if allowed" },
  { value: "wasm-single", label: "CPU, one core", hint: "WASM, one thread" },
];

/** Something of the reader's that a page keeps on the device. */
export interface PageData {
  /** Names it in data-testids: "delete-{key}". */
  key: string;
  /** "conversation", "picture" */
  one: string;
  /** "conversations", "pictures" */
  many: string;
  count: number;
  clear(): void;
}

interface SettingsPanelProps {
  shell: AnyShell;
  /** The page's own sections: `<section><h3>…</h3>…</section>`. */
  children?: ComponentChildren;
  data: readonly PageData[];
  about: readonly AboutRow[];
  onReset: () => void;
  onClose: () => void;
}

function ClearData({ data }: { data: PageData }): JSX.Element {
  const { key, one, many, count } = data;
  if (count === 0) return <p class="hint">There are no {many} on this device.</p>;
  const what = count === 1 ? `the ${one}` : `all ${count} ${many}`;
  return <Confirm testId={`delete-${key}`} label={`Delete ${what}`} question={`Really delete ${what}?`} onConfirm={() => data.clear()} />;
}

export function SettingsPanel({ shell, children, data, about, onReset, onClose }: SettingsPanelProps): JSX.Element {
  const { settings, options } = shell;
  const kept = options.words.kept;
  return (
    <Dialog kind="sheet" labelledBy="settings-title" testId="settings-dialog" onClose={onClose}>
      <DialogHead id="settings-title" title="Settings" closeTestId="close-settings" closeLabel="Close settings" onClose={onClose} />
      <div class="dialog-content">
        <section>
          <Radios
            legend="Appearance"
            name="theme"
            layout="row"
            choices={THEME_CHOICES}
            value={settings.theme}
            onChange={(theme) => shell.changeSettings({ theme })}
          />
        </section>
        {children}
        <section>
          <Radios
            legend="Runs on"
            name="backend"
            layout="list"
            choices={BACKEND_CHOICES}
            value={shell.model.backendChoice}
            onChange={(backend) => shell.changeSettings({ backend })}
          />
          <small class="hint">Changing this loads the model anew; {kept}.</small>
        </section>
        <section>
          <h3>About</h3>
          <AboutFigures shell={shell} rows={about} />
          <p class="hint">Made with tinyweb. The model runs wholly in this browser: nothing of yours ever leaves this device.</p>
        </section>
        <section class="dialog-actions">
          <button type="button" class="button" data-testid="reset" onClick={onReset}>
            <Icon name="again" />
            Reset settings
          </button>
          {data.map((each) => (
            <ClearData key={each.key} data={each} />
          ))}
        </section>
      </div>
    </Dialog>
  );
}
