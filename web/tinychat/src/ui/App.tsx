import type { JSX } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { ChatApp } from "../app/chat-app";
import { displayName } from "../app/model";
import { pageState } from "../app/state";
import { Composer } from "./Composer";
import { Dialog } from "./Dialog";
import { FailureCard, LoadStrip, NoteLine, StatusLine, UndoLine } from "./Dock";
import { useFollowing, useMedia, useTheme, useVisibleHeight } from "./hooks";
import { Icon } from "./icons";
import { Messages } from "./Messages";
import { SettingsDialog } from "./Settings";
import { Sidebar } from "./Sidebar";
import { Welcome } from "./Welcome";

const WIDE = "(min-width: 900px)";
/** A device with a mouse or trackpad: there the prompt may take focus without a keyboard popping up. */
const FINE_POINTER = "(hover: hover) and (pointer: fine)";

export function App({ app }: { app: ChatApp }): JSX.Element {
  const [, redraw] = useState(0);
  useEffect(() => app.subscribe(() => redraw((count) => count + 1)), [app]);
  const { state } = app;
  const page = pageState(state);

  const wide = useMedia(WIDE);
  const finePointer = useMedia(FINE_POINTER);
  const shownTheme = useTheme(state.settings.theme);
  useVisibleHeight();
  const name = displayName(state.facts);
  useEffect(() => {
    document.title = name;
  }, [name]);

  const [draft, setDraft] = useState("");
  const [overlay, setOverlay] = useState<"settings" | "list" | null>(null);
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
    if (overlay === null) focusPrompt();
  }, [state.conversation.id]);

  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      // An open dialog closes with Esc by itself.
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]") !== null) return;
      app.stop();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, [app]);

  const closeOverlay = (): void => setOverlay(null);

  return (
    <div class={`app${docked ? " has-sidebar" : ""}`} data-state={page} data-testid="app">
      {docked && (
        <aside class="sidebar" aria-labelledby="history-title">
          <Sidebar app={app} state={state} headingId="history-title" onChosen={focusPrompt} onClose={null} />
        </aside>
      )}
      <div class="page">
        <header class="bar">
          <button
            type="button"
            class="icon-button"
            data-testid="conversations"
            title="Conversations"
            aria-expanded={wide ? docked : overlay === "list"}
            onClick={() => (wide ? app.changeSettings({ sidebar: !state.settings.sidebar }) : setOverlay("list"))}
          >
            <Icon name="menu" />
            <span class="sr-only">Conversations</span>
          </button>
          <h1>{name}</h1>
          <div class="bar-actions">
            <button
              type="button"
              class="icon-button theme-toggle"
              data-testid="theme"
              title={shownTheme === "dark" ? "Light theme" : "Dark theme"}
              onClick={() => app.changeSettings({ theme: shownTheme === "dark" ? "light" : "dark" })}
            >
              <Icon name={shownTheme === "dark" ? "sun" : "moon"} />
              <span class="sr-only">{shownTheme === "dark" ? "Light theme" : "Dark theme"}</span>
            </button>
            <button
              type="button"
              class="icon-button"
              data-testid="settings"
              title="Settings"
              aria-haspopup="dialog"
              onClick={() => setOverlay("settings")}
            >
              <Icon name="settings" />
              <span class="sr-only">Settings</span>
            </button>
            <button
              type="button"
              class="icon-button new-chat"
              data-testid="new-chat"
              title="New chat"
              onClick={() => {
                app.newChat();
                focusPrompt();
              }}
            >
              <Icon name="plus" />
              <span class="new-chat-label">New chat</span>
            </button>
          </div>
        </header>

        <main ref={scroller} class="scroller" tabIndex={0}>
          <div ref={content} class="column">
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
          </div>
        </main>

        <footer class="dock">
          <div class="dock-inner">
            {!atEnd && (
              <button type="button" class="jump" data-testid="jump" title="Jump to the latest" onClick={jump}>
                <Icon name="down" />
                <span class="sr-only">Jump to the latest</span>
              </button>
            )}
            {state.deleted !== null && <UndoLine app={app} title={state.deleted.title} key={state.deleted.id} />}
            {state.notes.map((note) => (
              <NoteLine key={note.id} note={note} onClose={() => app.dismissNote(note.id)} />
            ))}
            {state.engine.phase === "loading" && <LoadStrip progress={state.engine.progress} />}
            {state.engine.phase === "failed" && <FailureCard failure={state.engine.failure} app={app} />}
            <Composer
              input={prompt}
              text={draft}
              name={name}
              busy={busy}
              onText={setDraft}
              onSend={() => send(draft)}
              onStop={() => {
                app.stop();
                focusPrompt();
              }}
            />
            <StatusLine state={state} dot={page} />
          </div>
        </footer>
      </div>

      {overlay === "settings" && <SettingsDialog app={app} state={state} onClose={closeOverlay} />}
      {overlay === "list" && !wide && (
        <Dialog kind="drawer" labelledBy="drawer-title" testId="drawer" onClose={closeOverlay}>
          <Sidebar app={app} state={state} headingId="drawer-title" onChosen={closeOverlay} onClose={closeOverlay} />
        </Dialog>
      )}
      <div class="sr-only" role="status" aria-live="polite" data-testid="announcement">
        {state.announcement}
      </div>
    </div>
  );
}
