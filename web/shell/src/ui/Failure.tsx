/** Why the model could not be loaded, and what can be done. */

import type { JSX } from "preact";
import type { AnyShell } from "../shell";
import type { Failure as Told, Remedy } from "../text/failures";
import { Icon } from "./icons";

const REMEDY_LABELS: Record<Remedy, string> = {
  retry: "Try again",
  "use-wasm": "Use the CPU",
  "use-wasm-single": "Use one core of the CPU",
  smaller: "Load it smaller",
  reload: "Reload the page",
};

/** The page's error: what happened, what it means, and buttons for what can be done. */
export function Failure({ failure, shell }: { failure: Told; shell: AnyShell }): JSX.Element {
  const act: Record<Remedy, () => void> = {
    retry: () => void shell.model.load(),
    "use-wasm": () => shell.changeSettings({ backend: "wasm" }),
    "use-wasm-single": () => shell.changeSettings({ backend: "wasm-single" }),
    smaller: () => shell.model.chooseSmaller(true),
    reload: () => location.reload(),
  };
  const { backendChoice, offersSmaller } = shell.model;
  const useless = new Set<Remedy>([
    ...(backendChoice.startsWith("wasm") ? (["use-wasm"] as const) : []),
    ...(backendChoice === "wasm-single" ? (["use-wasm-single"] as const) : []),
    ...(offersSmaller ? [] : (["smaller"] as const)),
  ]);
  const remedies = failure.remedies.filter((remedy) => !useless.has(remedy));
  return (
    <div class="failure" role="alert" data-testid="error" data-code={failure.code}>
      <Icon name="alert" />
      <div>
        <h2>{failure.title}</h2>
        <p>{failure.text}</p>
        <div class="failure-actions">
          {remedies.map((remedy, index) => (
            <button key={remedy} type="button" class={index === 0 ? "button primary" : "button"} data-testid={remedy} onClick={act[remedy]}>
              {REMEDY_LABELS[remedy]}
            </button>
          ))}
          {failure.detail !== "" && (
            <details>
              <summary>Details</summary>
              <p>{failure.detail}</p>
            </details>
          )}
        </div>
      </div>
    </div>
  );
}
