/** What settings are made of. */

import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { Icon, type IconName } from "./icons";

export interface Choice<Value> {
  value: Value;
  label: string;
  hint?: string;
}

interface RadiosProps<Value> {
  legend: string;
  name: string;
  choices: readonly Choice<Value>[];
  value: Value;
  /** "row": segments side by side, for two to four short labels. */
  layout: "row" | "list";
  onChange: (value: Value) => void;
}

export function Radios<Value extends string>({ legend, name, choices, value, layout, onChange }: RadiosProps<Value>): JSX.Element {
  return (
    <fieldset class={`radios radios-${layout}`}>
      <legend>{legend}</legend>
      <div class="radios-choices">
        {choices.map((choice) => (
          <label key={choice.value}>
            <input type="radio" name={name} value={choice.value} checked={choice.value === value} onChange={() => onChange(choice.value)} />
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
  /** Its id and data-testid. */
  id: string;
  label: string;
  hint?: string;
  value: number;
  /** The value in words: "0.70", "256 tokens". */
  shown: string;
  range: { min: number; max: number; step: number };
  disabled?: boolean;
  onChange: (value: number) => void;
}

export function Slider({ id, label, hint, value, shown, range, disabled = false, onChange }: SliderProps): JSX.Element {
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
        disabled={disabled}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
        onInput={(event) => onChange(event.currentTarget.valueAsNumber)}
      />
      {hint !== undefined && <small id={`${id}-hint`}>{hint}</small>}
    </div>
  );
}

interface FieldProps {
  /** Of the field inside, which carries it itself; a hint gets the id with "-hint" added. */
  id: string;
  label: string;
  hint?: string;
  children: ComponentChildren;
}

/** A label above a text field, select or text area. */
export function Field({ id, label, hint, children }: FieldProps): JSX.Element {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children}
      {hint !== undefined && <small id={`${id}-hint`}>{hint}</small>}
    </div>
  );
}

interface ConfirmProps {
  testId: string;
  icon?: IconName;
  /** "Delete all 3 conversations" */
  label: string;
  /** "Really delete all 3 conversations?" */
  question: string;
  onConfirm: () => void;
}

/** A button that asks back once before it destroys something. */
export function Confirm({ testId, icon = "trash", label, question, onConfirm }: ConfirmProps): JSX.Element {
  const [asked, setAsked] = useState(false);
  return (
    <button
      type="button"
      class={asked ? "button danger" : "button"}
      data-testid={testId}
      onClick={() => {
        if (asked) onConfirm();
        setAsked(!asked);
      }}
      onBlur={() => setAsked(false)}
    >
      <Icon name={icon} />
      {asked ? question : label}
    </button>
  );
}

interface IconButtonProps {
  icon: IconName;
  /** Said by screen readers; the tooltip too unless `title` says more. */
  label: string;
  testId?: string;
  title?: string;
  class?: string;
  disabled?: boolean;
  pressed?: boolean;
  onClick: () => void;
}

export function IconButton({
  icon,
  label,
  testId,
  title = label,
  class: extra,
  disabled = false,
  pressed,
  onClick,
}: IconButtonProps): JSX.Element {
  return (
    <button
      type="button"
      class={`icon-button${extra === undefined ? "" : ` ${extra}`}`}
      data-testid={testId}
      title={title}
      disabled={disabled}
      aria-pressed={pressed}
      onClick={onClick}
    >
      <Icon name={icon} />
      <span class="sr-only">{label}</span>
    </button>
  );
}
