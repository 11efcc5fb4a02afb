import type { JSX } from "preact";
import { modelSizes } from "tinyweb-shell";
import { displayName, type ModelFacts } from "../app/facts";
import { Mark } from "./Mark";

interface Suggestion {
  title: string;
  hint: string;
  /** Sent as it is; or, when `open`, put into the prompt to be completed. */
  text: string;
  open?: boolean;
}

const SUGGESTIONS: readonly Suggestion[] = [
  { title: "What is 7 plus 5?", hint: "Sums and times tables", text: "What is 7 plus 5?" },
  { title: "Tell me a story about a little fox", hint: "Or about whom you like", text: "Tell me a story about a little fox" },
  { title: "My name is …", hint: "Then ask what it is", text: "My name is ", open: true },
  { title: "What is the capital of France?", hint: "Capitals, animals, opposites", text: "What is the capital of France?" },
];

interface WelcomeProps {
  facts: ModelFacts;
  awake: boolean;
  onSend: (text: string) => void;
  onFill: (text: string) => void;
}

export function Welcome({ facts, awake, onSend, onFill }: WelcomeProps): JSX.Element {
  const identity = [...(facts.name === undefined ? [] : [facts.name]), ...modelSizes(facts)].join("\u00a0· ");
  return (
    <section class="welcome">
      <Mark size="large" awake={awake} />
      <h2>Hello, I’m {displayName(facts)}.</h2>
      <p>I’m a small language model that runs wholly in your browser. What you type never leaves this device.</p>
      <ul class="suggestions" aria-label="Things to try">
        {SUGGESTIONS.map((suggestion) => (
          <li key={suggestion.text}>
            <button
              type="button"
              data-testid="suggestion"
              onClick={() => (suggestion.open === true ? onFill(suggestion.text) : onSend(suggestion.text))}
            >
              <strong>{suggestion.title}</strong>
              <span>{suggestion.hint}</span>
            </button>
          </li>
        ))}
      </ul>
      {identity !== "" && (
        <p class="identity" data-testid="model">
          {identity}
        </p>
      )}
    </section>
  );
}
