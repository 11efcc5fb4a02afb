/** The page's part of the settings. */

import type { JSX } from "preact";
import { Field, type PageData } from "tinyweb-shell";
import type { ChatApp } from "../app/chat-app";
import { displayName } from "../app/facts";
import type { State } from "../app/state";
import { LIMITS } from "../store/settings";
import { SamplingSettings } from "./Sampling";

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
  return (
    <SamplingSettings
      facts={facts}
      engine={state.engine}
      sampling={app.sampling}
      change={(change) => app.changeSettings(change)}
      title="Answers"
      longest="Longest answer"
    >
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
    </SamplingSettings>
  );
}
