/** What stands between the conversation and the prompt: load progress, notes, errors; and the quiet line below it. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { ChatApp } from "../app/chat-app";
import type { Note, State } from "../app/state";
import type { LoadProgress } from "../model-api";
import type { Failure, Remedy } from "../text/failures";
import { backendName, formatBytes, formatProgress, formatSecondsLeft, formatSpeed } from "../text/format";
import { Icon } from "./icons";

function progressLabel(progress: LoadProgress | null): string {
  switch (progress?.phase) {
    case "weights":
      return progress.fromCache ? "Reading the model from this device" : "Downloading the model";
    case "compile":
    case "ready":
      return "Preparing the model";
    default:
      return "Looking for the model";
  }
}

export function LoadStrip({ progress }: { progress: LoadProgress | null }): JSX.Element {
  const known = progress?.phase === "weights" && progress.totalBytes > 0;
  const left = known && !progress.fromCache ? formatSecondsLeft(progress.secondsLeft) : "";
  return (
    <div class="strip">
      <div class="strip-text">
        <span id="progress-label">{progressLabel(progress)}</span>
        {known && (
          <span class="strip-figures">
            {formatProgress(progress.loadedBytes, progress.totalBytes)}
            {left !== "" && ` · ${left}`}
          </span>
        )}
      </div>
      {known ? (
        <progress
          data-testid="progress"
          aria-labelledby="progress-label"
          value={progress.loadedBytes}
          max={progress.totalBytes}
        />
      ) : (
        <progress data-testid="progress" aria-labelledby="progress-label" />
      )}
    </div>
  );
}

const REMEDY_LABELS: Record<Remedy, string> = {
  retry: "Try again",
  "use-wasm": "Use the CPU",
  reload: "Reload the page",
};

export function FailureCard({ failure, app }: { failure: Failure; app: ChatApp }): JSX.Element {
  const act: Record<Remedy, () => void> = {
    retry: () => void app.retry(),
    "use-wasm": () => app.changeSettings({ backend: "wasm" }),
    reload: () => location.reload(),
  };
  const remedies = failure.remedies.filter((remedy) => remedy !== "use-wasm" || !app.backendChoice.startsWith("wasm"));
  return (
    <div class="failure" role="alert" data-testid="error" data-code={failure.code}>
      <Icon name="alert" />
      <div>
        <h2>{failure.title}</h2>
        <p>{failure.text}</p>
        {failure.detail !== "" && (
          <details>
            <summary>Details</summary>
            <p>{failure.detail}</p>
          </details>
        )}
        <div class="failure-actions">
          {remedies.map((remedy, index) => (
            <button
              key={remedy}
              type="button"
              class={index === 0 ? "button primary" : "button"}
              data-testid={remedy}
              onClick={act[remedy]}
            >
              {REMEDY_LABELS[remedy]}
            </button>
          ))}
        </div>
      </div>
    </div>
  );
}

export function NoteLine({ note, onClose }: { note: Note; onClose: () => void }): JSX.Element {
  return (
    <div class={`note note-${note.tone}`} role="status" data-testid="note">
      <Icon name={note.tone === "good" ? "check" : "info"} />
      <p>
        {note.title !== undefined && <strong>{note.title}</strong>}
        {note.text}
      </p>
      <button type="button" class="icon-button" data-testid="dismiss" title="Close" onClick={onClose}>
        <Icon name="close" />
        <span class="sr-only">Close this note</span>
      </button>
    </div>
  );
}

const UNDO_MS = 8000;

export function UndoLine({ app, title }: { app: ChatApp; title: string }): JSX.Element {
  useEffect(() => {
    const timer = setTimeout(() => app.forgetRemoved(), UNDO_MS);
    return () => clearTimeout(timer);
  }, [app, title]);
  return (
    <div class="note note-info" role="status" data-testid="undo-note">
      <Icon name="trash" />
      <p>Deleted “{title}”.</p>
      <button type="button" class="button quiet" data-testid="undo" onClick={() => app.undoRemove()}>
        Undo
      </button>
    </div>
  );
}

/** The first word tells the state. */
export function statusText(state: State): string {
  const { engine } = state;
  if (engine.phase === "failed") return `Error: ${engine.failure.title}`;
  if (state.answering !== null) return "Answering…";
  if (engine.phase === "ready") return "Ready";
  const { progress } = engine;
  if (progress?.phase !== "weights" || progress.totalBytes <= 0) return "Loading…";
  return `Loading… ${Math.floor((100 * Math.min(progress.loadedBytes, progress.totalBytes)) / progress.totalBytes)} %`;
}

export function StatusLine({ state, dot }: { state: State; dot: string }): JSX.Element {
  const info = state.engine.phase === "ready" ? state.engine.info : null;
  const figures: { key: string; text: string; unit?: string }[] = [];
  if (info !== null) {
    const speed = (state.answering?.tokensPerSecond ?? 0) || (info.tokensPerSecond ?? 0);
    if (speed > 0) figures.push({ key: "speed", text: formatSpeed(speed) });
    if (info.memoryBytes != null && info.memoryBytes > 0) {
      figures.push({ key: "memory", text: formatBytes(info.memoryBytes), unit: "memory" });
    }
    const size = info.modelBytes ?? state.facts.modelBytes;
    if (size !== undefined && size > 0) figures.push({ key: "model-size", text: formatBytes(size), unit: "model" });
  }
  return (
    <p class="status-line">
      <span class={`status-dot dot-${dot}`} />
      <span data-testid="status">{statusText(state)}</span>
      {info !== null && (
        <span class="figure" data-testid="backend" data-backend={info.backend} title={info.adapter ?? ""}>
          {backendName(info.backend, info.adapter)}
        </span>
      )}
      {figures.map(({ key, text, unit }) => (
        <span key={key} class={`figure figure-${key}`} data-testid={key}>
          {text}
          {unit !== undefined && <span class="figure-unit"> {unit}</span>}
        </span>
      ))}
    </p>
  );
}
