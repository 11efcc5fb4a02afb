/** The settings of every page: appearance, the page's own, backend, what is stored. */

import type { ComponentChildren, JSX } from "preact";
import type { BackendChoice } from "../model-api";
import type { AnyShell } from "../shell";
import type { Theme } from "../store/settings";
import { Dialog, DialogHead } from "./Dialog";
import { Radios, type Choice } from "./Fields";
import { Icon } from "./icons";
import { Stored, type PageData } from "./Stored";

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

interface SettingsPanelProps {
  shell: AnyShell;
  /** The page's own sections: `<section><h3>…</h3>…</section>`. */
  children?: ComponentChildren;
  data: readonly PageData[];
  onAbout: () => void;
  onReset: () => void;
  onClose: () => void;
}

export function SettingsPanel({ shell, children, data, onAbout, onReset, onClose }: SettingsPanelProps): JSX.Element {
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
        <Stored shell={shell} data={data} />
        <section class="dialog-actions">
          <button type="button" class="button" data-testid="reset" onClick={onReset}>
            <Icon name="again" />
            Reset settings
          </button>
          <button type="button" class="button" data-testid="about-open" aria-haspopup="dialog" onClick={onAbout}>
            <Icon name="info" />
            About
          </button>
        </section>
      </div>
    </Dialog>
  );
}
