/** The page's part of the settings. */

import type { JSX } from "preact";
import { Field, modelRows, Slider, type AboutRow, type PageData } from "tinyweb-shell";
import type { ChatApp } from "../app/chat-app";
import { displayName } from "../app/facts";
import type { State } from "../app/state";
import { LIMITS } from "../store/settings";

/** What is known of the model, beyond what the shell knows of every one. */
export function aboutRows(state: State): AboutRow[] {
  const rows = modelRows(state.facts.name, state.facts);
  const info = state.engine.phase === "ready" ? state.engine.info : null;
  const context = info?.context ?? state.facts.context;
  if (context !== undefined) rows.push(["Remembers", `${context} tokens, question and answer together`]);
  if (info === null) return rows;
  const { firstTokenMs = 0 } = state.figures ?? {};
  if (firstTokenMs > 0) rows.push(["First token", `after ${Math.round(firstTokenMs)} ms`]);
  if (info.kernelsPerToken != null && info.kernelsPerToken > 0) rows.push(["Kernels", `${info.kernelsPerToken} for each token`]);
  return rows;
}

export function conversationData(app: ChatApp, state: State): PageData {
  return {
    key: "all",
    one: "conversation",
    many: "conversations",
    count: state.history.length,
    bytes: () => app.conversationBytes,
    clear: () => app.removeAll(),
  };
}

export function AnswerSettings({ app, state }: { app: ChatApp; state: State }): JSX.Element {
  const { settings, facts } = state;
  const { temperature, topP, maxTokens } = app.sampling;
  const context = (state.engine.phase === "ready" ? state.engine.info.context : null) ?? facts.context;
  const longest = Math.max(maxTokens, Math.min(LIMITS.maxTokens.max, context ?? 2048));
  return (
    <section>
      <h3>Answers</h3>
      <Slider
        id="temperature"
        label="Temperature"
        hint="0 always gives the likeliest answer; higher is more surprising."
        value={temperature}
        shown={temperature.toFixed(2)}
        range={LIMITS.temperature}
        onChange={(value) => app.changeSettings({ temperature: value })}
      />
      <Slider
        id="top-p"
        label="Top-p"
        hint="Only the likeliest tokens that make up this share are drawn from."
        value={topP}
        shown={topP.toFixed(2)}
        range={LIMITS.topP}
        onChange={(value) => app.changeSettings({ topP: value })}
      />
      <Slider
        id="max-tokens"
        label="Longest answer"
        hint="A token is about three quarters of a word."
        value={maxTokens}
        shown={`${maxTokens} tokens`}
        range={{ ...LIMITS.maxTokens, max: longest }}
        onChange={(value) => app.changeSettings({ maxTokens: value })}
      />
      <Field id="system" label={`Instructions for ${displayName(facts)}`} hint="Sent before every conversation, as the system prompt.">
        <textarea
          id="system"
          data-testid="system-prompt"
          rows={3}
          maxLength={LIMITS.systemLength}
          value={settings.system}
          placeholder="Optional, for example: The user’s name is Ada."
          aria-describedby="system-hint"
          onInput={(event) => app.changeSettings({ system: event.currentTarget.value })}
        />
      </Field>
    </section>
  );
}
