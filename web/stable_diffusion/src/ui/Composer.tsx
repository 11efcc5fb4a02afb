import type { JSX, RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { Icon } from "tinyweb-shell";
import { MAX_PROMPT } from "../app/draft";
import type { Studio } from "../app/studio";

/** About five lines; after that the text scrolls. */
const MAX_HEIGHT = 136;

interface ComposerProps {
  studio: Studio;
  input: RefObject<HTMLTextAreaElement | null>;
  onGenerate: () => void;
}

export function Composer({ studio, input, onGenerate }: ComposerProps): JSX.Element {
  const { prompt } = studio.state.draft;
  const { busy } = studio;
  useLayoutEffect(() => {
    const element = input.current;
    if (element === null) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(MAX_HEIGHT, element.scrollHeight)}px`;
    element.style.overflowY = element.scrollHeight > MAX_HEIGHT ? "auto" : "hidden";
  }, [prompt, input]);

  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy) onGenerate();
      }}
    >
      <label class="sr-only" for="prompt">
        What to paint
      </label>
      <textarea
        id="prompt"
        ref={input}
        data-testid="prompt"
        rows={1}
        value={prompt}
        maxLength={MAX_PROMPT}
        placeholder="What shall be painted?"
        enterkeyhint="go"
        autocomplete="off"
        onInput={(event) => studio.edit({ prompt: event.currentTarget.value })}
        onKeyDown={(event) => {
          // While an input method composes a character, Enter belongs to it (keyCode 229 where isComposing is missing).
          if (event.key !== "Enter" || event.shiftKey || event.ctrlKey || event.metaKey || event.isComposing || event.keyCode === 229) return;
          event.preventDefault();
          if (!busy) onGenerate();
        }}
      />
      {/* One element for both, so that focus stays on it when one becomes the other. */}
      <button
        type="button"
        class={`send-button generate-button${busy ? " is-stop" : ""}`}
        data-testid={busy ? "stop" : "generate"}
        title={busy ? "Stop (Esc)" : "Paint (Enter)"}
        disabled={!busy && prompt.trim() === ""}
        onClick={busy ? () => studio.stop() : onGenerate}
      >
        <Icon name={busy ? "stop" : "send"} />
        <span class="generate-label">{busy ? "Stop" : "Paint"}</span>
      </button>
    </form>
  );
}
