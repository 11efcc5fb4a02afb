import type { JSX, RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { Icon } from "tinyweb-shell";

/** About seven lines; after that the text scrolls. */
const MAX_HEIGHT = 184;

interface ComposerProps {
  input: RefObject<HTMLTextAreaElement | null>;
  text: string;
  name: string;
  /** An answer is being written or waited for: the button stops it. */
  busy: boolean;
  onText: (text: string) => void;
  onSend: () => void;
  onStop: () => void;
}

export function Composer({ input, text, name, busy, onText, onSend, onStop }: ComposerProps): JSX.Element {
  useLayoutEffect(() => {
    const element = input.current;
    if (element === null) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(MAX_HEIGHT, element.scrollHeight)}px`;
    element.style.overflowY = element.scrollHeight > MAX_HEIGHT ? "auto" : "hidden";
  }, [text, input]);

  const onKeyDown = (event: KeyboardEvent): void => {
    // While an input method composes a character, Enter belongs to it (keyCode 229 where isComposing is missing).
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    if (!busy) onSend();
  };

  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy) onSend();
      }}
    >
      <label class="sr-only" for="prompt">
        Message {name}
      </label>
      <textarea
        id="prompt"
        ref={input}
        data-testid="prompt"
        rows={1}
        value={text}
        placeholder={`Message ${name}`}
        enterkeyhint="send"
        autocomplete="off"
        onInput={(event) => onText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      {/* One element for both, so that focus stays on it when one becomes the other. */}
      <button
        type="button"
        class={`send-button${busy ? " is-stop" : ""}`}
        data-testid={busy ? "stop" : "send"}
        aria-label={busy ? "Stop" : "Send"}
        title={busy ? "Stop (Esc)" : "Send (Enter)"}
        disabled={!busy && text.trim() === ""}
        onClick={busy ? onStop : onSend}
      >
        <Icon name={busy ? "stop" : "send"} />
      </button>
    </form>
  );
}
