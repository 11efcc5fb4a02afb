/** The field for what is said to the model, with the button that sends it, or stops what it began. */

import type { JSX, RefObject } from "preact";
import { isBlank } from "../text/format";
import { useFittedHeight } from "./hooks";
import { Icon } from "./icons";

interface ComposerProps {
  input: RefObject<HTMLTextAreaElement | null>;
  text: string;
  /** Of the field, for screen readers. */
  label: string;
  placeholder: string;
  /** What the button does: "Send". Shown beside its icon where `named`. */
  action: string;
  /** Of the button while it sends. */
  testId: string;
  named?: boolean;
  /** From this many lines on the text scrolls; earlier where the screen is low. */
  maxLines: number;
  maxLength?: number;
  /** What was sent is being worked on: the button stops it. */
  busy: boolean;
  onText: (text: string) => void;
  onSend: () => void;
  onStop: () => void;
}

export function Composer({
  input,
  text,
  label,
  placeholder,
  action,
  testId,
  named = false,
  maxLines,
  maxLength,
  busy,
  onText,
  onSend,
  onStop,
}: ComposerProps): JSX.Element {
  useFittedHeight(input, text);
  const blank = isBlank(text);
  const send = (): void => {
    if (!busy && !blank) onSend();
  };

  const onKeyDown = (event: KeyboardEvent): void => {
    // While an input method composes a character, Enter belongs to it (keyCode 229 where isComposing is missing).
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    send();
  };

  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <label class="sr-only" for="prompt">
        {label}
      </label>
      <textarea
        id="prompt"
        ref={input}
        data-testid="prompt"
        rows={1}
        style={{ maxHeight: `min(${maxLines * 1.625}em + 1.125rem, var(--app-height, 100dvh) * 0.3)` }}
        value={text}
        maxLength={maxLength}
        placeholder={placeholder}
        enterkeyhint="send"
        autocomplete="off"
        onInput={(event) => onText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      {/* One element for both, so that focus stays on it when one becomes the other. */}
      <button
        type="button"
        class={`send-button${named ? " is-named" : ""}${busy ? " is-stop" : ""}`}
        data-testid={busy ? "stop" : testId}
        title={busy ? "Stop (Esc)" : `${action} (Enter)`}
        disabled={!busy && blank}
        onClick={busy ? onStop : onSend}
      >
        <Icon name={busy ? "stop" : "send"} />
        <span class={named ? undefined : "sr-only"}>{busy ? "Stop" : action}</span>
      </button>
    </form>
  );
}
