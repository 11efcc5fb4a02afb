import type { JSX } from "preact";
import { Icon } from "tinyweb-shell";
import "../styles/new-button.css";

interface NewButtonProps {
  label: string;
  testId: string;
  disabled?: boolean;
  onClick: () => void;
}

/** Begins anew, at the top of the page; its label is seen where there is room. */
export function NewButton({ label, testId, disabled = false, onClick }: NewButtonProps): JSX.Element {
  return (
    <button type="button" class="icon-button new-button" data-testid={testId} title={label} disabled={disabled} onClick={onClick}>
      <Icon name="plus" />
      <span class="new-button-label">{label}</span>
    </button>
  );
}
