import type { JSX } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import {
  Composer,
  Dialog,
  FINE_POINTER,
  formatSpeed,
  Icon,
  IconButton,
  Layout,
  Main,
  UndoLine,
  useChanges,
  useEscape,
  useFollowing,
  useMedia,
  type Figure,
} from "tinyweb-shell";
import type { ChatApp } from "../app/chat-app";
import { displayName } from "../app/facts";
import type { State } from "../app/state";
import { Messages } from "./Messages";
import { NewButton } from "./NewButton";
import { aboutRows } from "./Sampling";
import { AnswerSettings, conversationData } from "./Settings";
import { Sidebar } from "./Sidebar";
import { Welcome } from "./Welcome";

const WIDE = "(min-width: 900px)";

function figures(state: State): Figure[] {
  if (state.engine.phase !== "ready") return [];
  const speed = (state.answering?.tokensPerSecond ?? 0) || (state.figures?.tokensPerSecond ?? 0);
  return speed > 0 ? [{ key: "speed", text: formatSpeed(speed) }] : [];
}

export function App({ app }: { app: ChatApp }): JSX.Element {
  useChanges(app);
  const { state } = app;

  const wide = useMedia(WIDE);
  const finePointer = useMedia(FINE_POINTER);
  const name = displayName(state.facts);

  const [draft, setDraft] = useState("");
  const [list, setList] = useState(false);
  const prompt = useRef<HTMLTextAreaElement>(null);

  const busy = state.answering !== null || state.queued;
  const empty = state.conversation.messages.length === 0;
  const { scroller, content, atEnd, jump } = useFollowing(!empty);
  const docked = wide && state.settings.sidebar;

  const focusPrompt = useCallback((): void => {
    if (finePointer) prompt.current?.focus();
  }, [finePointer]);

  const send = (text: string): void => {
    if (!app.send(text)) return;
    setDraft("");
    jump();
    // On a phone the keyboard goes away, so that the answer can be seen.
    if (finePointer) prompt.current?.focus();
    else prompt.current?.blur();
  };

  useEffect(() => {
    if (!empty) jump();
    if (document.querySelector("dialog[open]") === null) focusPrompt();
  }, [state.conversation.id]);

  useEscape(() => app.stop());

  const closeList = (): void => setList(false);

  return (
    <Layout
      shell={app.shell}
      busy={state.answering === null ? null : "Answering…"}
      aside={
        docked && (
          <aside class="sidebar" aria-labelledby="history-title">
            <Sidebar app={app} state={state} headingId="history-title" onChosen={focusPrompt} onClose={null} />
          </aside>
        )
      }
      leading={
        <button
          type="button"
          class="icon-button"
          data-testid="conversations"
          title="Conversations"
          aria-expanded={wide ? docked : list}
          onClick={() => (wide ? app.changeSettings({ sidebar: !state.settings.sidebar }) : setList(true))}
        >
          <Icon name="menu" />
          <span class="sr-only">Conversations</span>
        </button>
      }
      actions={
        <NewButton
          label="New chat"
          testId="new-chat"
          onClick={() => {
            app.newChat();
            focusPrompt();
          }}
        />
      }
      floating={!atEnd && <IconButton class="jump" icon="down" label="Jump to the latest" testId="jump" onClick={jump} />}
      lines={
        state.deleted !== null && (
          <UndoLine
            key={state.deleted.id}
            title={state.deleted.title}
            onUndo={() => app.undoRemove()}
            onForget={() => app.forgetRemoved()}
          />
        )
      }
      dock={
        <Composer
          input={prompt}
          text={draft}
          label={`Message ${name}`}
          placeholder={`Message ${name}`}
          action="Send"
          testId="send"
          maxLines={6}
          busy={busy}
          onText={setDraft}
          onSend={() => send(draft)}
          onStop={() => {
            app.stop();
            focusPrompt();
          }}
        />
      }
      figures={figures(state)}
      settings={<AnswerSettings app={app} state={state} />}
      onReset={() => app.shell.resetSettings(["sidebar"])}
      data={[conversationData(app, state)]}
      about={aboutRows(state)}
      dialogs={
        list &&
        !wide && (
          <Dialog kind="drawer" labelledBy="drawer-title" testId="drawer" onClose={closeList}>
            <Sidebar app={app} state={state} headingId="drawer-title" onChosen={closeList} onClose={closeList} />
          </Dialog>
        )
      }
    >
      <Main scroller={scroller} content={content}>
        {empty ? (
          <Welcome
            facts={state.facts}
            awake={state.engine.phase === "ready"}
            onSend={send}
            onFill={(text) => {
              setDraft(text);
              prompt.current?.focus();
            }}
          />
        ) : (
          <Messages app={app} state={state} />
        )}
      </Main>
    </Layout>
  );
}
