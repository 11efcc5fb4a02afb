import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ChatApp } from "../app/chat-app";
import { displayName } from "../app/model";
import type { State } from "../app/state";
import type { BackendChoice } from "../model-api";
import { LIMITS, type Theme } from "../store/settings";
import { backendName, formatBytes, formatStart } from "../text/format";
import { Dialog } from "./Dialog";
import { Icon } from "./icons";
import { modelSizes } from "./Welcome";

interface Choice<T> {
  value: T;
  label: string;
  hint?: string;
}

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

interface RadiosProps<T> {
  legend: string;
  name: string;
  choices: readonly Choice<T>[];
  value: T;
  layout: "row" | "list";
  onChange: (value: T) => void;
}

function Radios<T extends string>({ legend, name, choices, value, layout, onChange }: RadiosProps<T>): JSX.Element {
  return (
    <fieldset class={`radios radios-${layout}`}>
      <legend>{legend}</legend>
      <div class="radios-choices">
        {choices.map((choice) => (
          <label key={choice.value}>
            <input
              type="radio"
              name={name}
              value={choice.value}
              checked={choice.value === value}
              onChange={() => onChange(choice.value)}
            />
            <span>
              {choice.label}
              {choice.hint !== undefined && <small>{choice.hint}</small>}
            </span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

interface SliderProps {
  id: string;
  label: string;
  hint: string;
  value: number;
  shown: string;
  range: { min: number; max: number; step: number };
  onChange: (value: number) => void;
}

function Slider({ id, label, hint, value, shown, range, onChange }: SliderProps): JSX.Element {
  return (
    <div class="slider">
      <label for={id}>{label}</label>
      <output for={id}>{shown}</output>
      <input
        id={id}
        type="range"
        data-testid={id}
        min={range.min}
        max={range.max}
        step={range.step}
        value={value}
        aria-describedby={`${id}-hint`}
        onInput={(event) => onChange(event.currentTarget.valueAsNumber)}
      />
      <small id={`${id}-hint`}>{hint}</small>
    </div>
  );
}

function DeleteAll({ app, count }: { app: ChatApp; count: number }): JSX.Element {
  const [asked, setAsked] = useState(false);
  if (count === 0) return <p class="hint">There are no conversations on this device.</p>;
  const what = count === 1 ? "the conversation" : `all ${count} conversations`;
  return (
    <button
      type="button"
      class={asked ? "button danger" : "button"}
      data-testid="delete-all"
      onClick={() => {
        if (asked) app.removeAll();
        setAsked(!asked);
      }}
      onBlur={() => setAsked(false)}
    >
      <Icon name="trash" />
      {asked ? `Really delete ${what}?` : `Delete ${what}`}
    </button>
  );
}

/** What is known of the model and of how it runs here, as pairs of label and value. */
function figures(state: State): [string, string][] {
  const rows: [string, string][] = [];
  if (state.facts.name !== undefined) rows.push(["Model", state.facts.name]);
  const sizes = modelSizes(state.facts);
  if (sizes.length > 0) rows.push(["Size", sizes.join(", ")]);
  const info = state.engine.phase === "ready" ? state.engine.info : null;
  const context = info?.context ?? state.facts.context;
  if (context !== undefined) rows.push(["Remembers", `${context} tokens, question and answer together`]);
  if (info === null) return rows;
  rows.push(["Runs on", [backendName(info.backend, info.adapter), info.backend === "webgpu" ? (info.adapter ?? "") : ""].filter((part) => part !== "").join(", ")]);
  if (info.memoryBytes != null && info.memoryBytes > 0) rows.push(["Memory", formatBytes(info.memoryBytes)]);
  if (info.start) rows.push(["Ready", formatStart(info.start)]);
  if (info.firstTokenMs != null && info.firstTokenMs > 0) rows.push(["First token", `after ${Math.round(info.firstTokenMs)} ms`]);
  if (info.kernelsPerToken != null && info.kernelsPerToken > 0) rows.push(["Kernels", `${info.kernelsPerToken} for each token`]);
  return rows;
}

export function SettingsDialog({ app, state, onClose }: { app: ChatApp; state: State; onClose: () => void }): JSX.Element {
  const { settings, facts } = state;
  const { temperature, topP, maxTokens } = app.sampling;
  const context = (state.engine.phase === "ready" ? state.engine.info.context : null) ?? facts.context;
  const longest = Math.max(maxTokens, Math.min(LIMITS.maxTokens.max, context ?? 2048));
  return (
    <Dialog kind="sheet" labelledBy="settings-title" testId="settings-dialog" onClose={onClose}>
      <header class="dialog-head">
        <h2 id="settings-title">Settings</h2>
        <button type="button" class="icon-button" data-testid="close-settings" title="Close (Esc)" onClick={onClose}>
          <Icon name="close" />
          <span class="sr-only">Close settings</span>
        </button>
      </header>
      <div class="dialog-content">
        <section>
          <Radios
            legend="Appearance"
            name="theme"
            layout="row"
            choices={THEME_CHOICES}
            value={settings.theme}
            onChange={(theme) => app.changeSettings({ theme })}
          />
        </section>
        <section>
          <h3>Answers</h3>
          <Slider
            id="temperature"
            label="Temperature"
            hint="0 always gives the likeliest answer; higher is more surprising."
            value={temperature}
            shown={temperature.toFixed(2)}
            range={LIMITS.temperature}
            onChange={(value) => app.changeSettings({ temperature: value })}
          />
          <Slider
            id="top-p"
            label="Top-p"
            hint="Only the likeliest tokens that make up this share are drawn from."
            value={topP}
            shown={topP.toFixed(2)}
            range={LIMITS.topP}
            onChange={(value) => app.changeSettings({ topP: value })}
          />
          <Slider
            id="max-tokens"
            label="Longest answer"
            hint="A token is about three quarters of a word."
            value={maxTokens}
            shown={`${maxTokens} tokens`}
            range={{ ...LIMITS.maxTokens, max: longest }}
            onChange={(value) => app.changeSettings({ maxTokens: value })}
          />
          <div class="field">
            <label for="system">Instructions for {displayName(facts)}</label>
            <textarea
              id="system"
              data-testid="system-prompt"
              rows={3}
              maxLength={LIMITS.systemLength}
              value={settings.system}
              placeholder="Optional, for example: The user’s name is Ada."
              aria-describedby="system-hint"
              onInput={(event) => app.changeSettings({ system: event.currentTarget.value })}
            />
            <small id="system-hint">Sent before every conversation, as the system prompt.</small>
          </div>
        </section>
        <section>
          <Radios
            legend="Runs on"
            name="backend"
            layout="list"
            choices={BACKEND_CHOICES}
            value={app.backendChoice}
            onChange={(backend) => app.changeSettings({ backend })}
          />
          <small class="hint">Changing this loads the model anew; conversations are kept.</small>
        </section>
        <section>
          <h3>About</h3>
          <dl class="figures">
            {figures(state).map(([label, value]) => (
              <div key={label}>
                <dt>{label}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
          <p class="hint">
            Made with tinyweb. The model runs wholly in this browser: what you type never leaves this device.
          </p>
        </section>
        <section class="dialog-actions">
          <button type="button" class="button" data-testid="reset" onClick={() => app.resetSettings()}>
            <Icon name="again" />
            Reset settings
          </button>
          <DeleteAll app={app} count={state.history.length} />
        </section>
      </div>
    </Dialog>
  );
}
