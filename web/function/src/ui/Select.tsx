import type { JSX } from "preact";
import { Field } from "tinyweb-shell";

interface SelectProps<Value extends string> {
  id: string;
  label: string;
  choices: readonly (readonly [Value, string])[];
  value: Value;
  onChange: (value: Value) => void;
}

/** One of several, by a menu of the system. */
export function Select<Value extends string>({ id, label, choices, value, onChange }: SelectProps<Value>): JSX.Element {
  return (
    <Field id={id} label={label}>
      <select id={id} data-testid={id} value={value} onChange={(event) => onChange(event.currentTarget.value as Value)}>
        {choices.map(([one, text]) => (
          <option key={one} value={one}>
            {text}
          </option>
        ))}
      </select>
    </Field>
  );
}

interface NumberProps {
  id: string;
  label: string;
  hint?: string;
  value: number;
  min?: number;
  max?: number;
  /** The number is a multiple of it, as `min` is. */
  step?: number;
  onChange: (value: number) => void;
}

/** A whole number. What is no such number is not taken. */
export function NumberField({ id, label, hint, value, min = 0, max = 2 ** 31 - 1, step = 1, onChange }: NumberProps): JSX.Element {
  return (
    <Field id={id} label={label} {...(hint === undefined ? {} : { hint })}>
      <input
        id={id}
        data-testid={id}
        type="number"
        inputMode="numeric"
        min={min}
        max={max}
        step={step}
        value={value}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
        onChange={(event) => {
          const given = step * Math.round(event.currentTarget.valueAsNumber / step);
          const taken = given >= min && given <= max;
          event.currentTarget.value = String(taken ? given : value);
          if (taken) onChange(given);
        }}
      />
    </Field>
  );
}
