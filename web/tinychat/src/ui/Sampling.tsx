/** What the pages of chats and of texts have alike: how tokens are chosen, and what is known of the model. */

import type { ComponentChildren, JSX } from "preact";
import { modelRows, Slider, type AboutRow, type Engine } from "tinyweb-shell";
import type { ModelFacts } from "../app/facts";
import type { AnswerFigures, ChatInfo } from "../model-api";
import { LIMITS, type Sampling, type Settings } from "../store/settings";

interface AboutModel {
  facts: ModelFacts;
  engine: Engine<ChatInfo>;
  figures: Readonly<AnswerFigures> | null;
}

/** What is known of the model, beyond what the shell knows of every one. */
export function aboutRows({ facts, engine, figures }: AboutModel): AboutRow[] {
  const rows = modelRows(facts.name, facts);
  const info = engine.phase === "ready" ? engine.info : null;
  const context = info?.context ?? facts.context;
  if (context !== undefined) rows.push(["Remembers", `${context} tokens, read and written together`]);
  if (info === null) return rows;
  const { firstTokenMs = 0 } = figures ?? {};
  if (firstTokenMs > 0) rows.push(["First token", `after ${Math.round(firstTokenMs)} ms`]);
  if (info.kernelsPerToken != null && info.kernelsPerToken > 0) rows.push(["Kernels", `${info.kernelsPerToken} for each token`]);
  return rows;
}

interface SamplingProps {
  /** What is known of the model. */
  facts: ModelFacts;
  engine: Engine<ChatInfo>;
  sampling: Sampling;
  change: (change: Partial<Settings>) => void;
  title: string;
  /** What the slider for the length is called. */
  longest: string;
  children?: ComponentChildren;
}

export function SamplingSettings({ facts, engine, sampling, change, title, longest: label, children }: SamplingProps): JSX.Element {
  const { temperature, topP, maxTokens } = sampling;
  const context = (engine.phase === "ready" ? engine.info.context : null) ?? facts.context;
  const longest = Math.max(maxTokens, Math.min(LIMITS.maxTokens.max, context ?? 2048));
  return (
    <section>
      <h3>{title}</h3>
      <Slider
        id="temperature"
        label="Temperature"
        hint="0 always takes what is likeliest; higher is more surprising."
        value={temperature}
        shown={temperature.toFixed(2)}
        range={LIMITS.temperature}
        onChange={(value) => change({ temperature: value })}
      />
      <Slider
        id="top-p"
        label="Top-p"
        hint="Only the likeliest tokens that make up this share are drawn from."
        value={topP}
        shown={topP.toFixed(2)}
        range={LIMITS.topP}
        onChange={(value) => change({ topP: value })}
      />
      <Slider
        id="max-tokens"
        label={label}
        hint="A token is about three quarters of a word."
        value={maxTokens}
        shown={`${maxTokens} tokens`}
        range={{ ...LIMITS.maxTokens, max: longest }}
        onChange={(value) => change({ maxTokens: value })}
      />
      {children}
    </section>
  );
}
