import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { formatSpeed, Icon, IconButton, Layout, Main, useChanges, useCopy, useEscape, useFittedHeight, useFollowing } from "tinyweb-shell";
import type { CompletionApp, Writing } from "../app/completion-app";
import { samplingOf } from "../store/settings";
import { NewButton } from "./NewButton";
import { aboutRows, SamplingSettings } from "./Sampling";

const HINT = "hint";

function Draft({ app, state }: { app: CompletionApp; state: Writing }): JSX.Element {
  const area = useRef<HTMLTextAreaElement>(null);
  useFittedHeight(area, state.text);
  return (
    <>
      <label class="sr-only" for="text">
        Text that the model continues
      </label>
      <textarea
        id="text"
        ref={area}
        class="draft"
        data-testid="text"
        rows={8}
        value={state.text}
        readOnly={app.busy}
        aria-busy={app.busy}
        aria-describedby={HINT}
        placeholder="Once upon a time"
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => app.write(event.currentTarget.value)}
        onBlur={() => app.save()}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing) return;
          event.preventDefault();
          app.continue();
        }}
      />
    </>
  );
}

function Controls({ app, state }: { app: CompletionApp; state: Writing }): JSX.Element {
  const [copied, copy] = useCopy();
  const busy = app.busy;
  return (
    <div class="completion-controls">
      <button type="button" class="button" data-testid="undo" disabled={busy || !state.canUndo} onClick={() => app.undo()}>
        Undo
      </button>
      <button
        type="button"
        class="button"
        data-testid="retry"
        title="Another continuation in place of the last"
        disabled={busy || !state.canRetry}
        onClick={() => app.retry()}
      >
        Retry
      </button>
      <button
        type="button"
        class="icon-button"
        data-testid="copy"
        title="Copy"
        disabled={state.text === ""}
        onClick={() => copy(state.text)}
      >
        <Icon name={copied ? "check" : "copy"} />
        <span class="sr-only">{copied ? "Copied" : "Copy the text"}</span>
      </button>
      <button
        type="button"
        class={`send-button is-named${busy ? " is-stop" : ""}`}
        data-testid={busy ? "stop" : "continue"}
        title={busy ? "Stop (Esc)" : "Continue (Ctrl+Enter)"}
        onClick={() => (busy ? app.stop() : app.continue())}
      >
        <Icon name={busy ? "stop" : "play"} />
        <span>{busy ? "Stop" : "Continue"}</span>
      </button>
    </div>
  );
}

/** The page of a base model: a text, and the model goes on where it ends. */
export function Completion({ app }: { app: CompletionApp }): JSX.Element {
  useChanges(app);
  const { state } = app;
  const { facts, shell } = app;
  const { engine } = shell.model.state;
  const { scroller, content, atEnd, jump } = useFollowing(app.busy || state.text !== "");
  const speed = state.tokensPerSecond || (state.figures?.tokensPerSecond ?? 0);
  useEscape(() => app.stop());
  const note = state.phase === "queued" ? "It goes on as soon as the model is ready." : state.ended;
  return (
    <Layout
      shell={shell}
      busy={state.phase === "reading" || state.phase === "writing" ? "Writing…" : null}
      actions={<NewButton label="New text" testId="new-text" disabled={app.busy} onClick={() => app.clear()} />}
      floating={!atEnd && <IconButton class="jump" icon="down" label="Jump to the end" testId="jump" onClick={jump} />}
      dock={<Controls app={app} state={state} />}
      figures={engine.phase === "ready" && speed > 0 ? [{ key: "speed", text: formatSpeed(speed) }] : []}
      settings={
        <SamplingSettings
          facts={facts}
          engine={engine}
          sampling={samplingOf(shell.settings, facts)}
          change={(change) => shell.changeSettings(change)}
          title="Text"
          longest="Longest continuation"
        />
      }
      data={[
        {
          key: "text",
          one: "text",
          many: "texts",
          count: state.text === "" ? 0 : 1,
          bytes: () => 2 * state.text.length,
          clear: () => app.clear(),
        },
      ]}
      about={aboutRows({ facts, engine, figures: state.figures })}
    >
      <Main scroller={scroller} content={content}>
        <section class="completion" aria-labelledby="completion-title">
          <h2 id="completion-title">Write a beginning, and {shell.title} goes on</h2>
          <p id={HINT} class="completion-hint">
            This is a base model: it continues texts and knows no questions or instructions. It runs in your browser; what you write never
            leaves this device.
          </p>
          <Draft app={app} state={state} />
          {note !== "" && (
            <p class="completion-hint" data-testid="ended">
              {note}
            </p>
          )}
          {state.problem !== "" && (
            <p class="problem" role="alert" data-testid="error">
              <Icon name="alert" />
              {state.problem}
            </p>
          )}
        </section>
      </Main>
    </Layout>
  );
}
