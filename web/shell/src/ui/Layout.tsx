/** The frame that every page has: bar, content, dock with notes, progress and errors, settings. */

import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";
import { pageState } from "../model/loader";
import type { AboutRow } from "../diagnostics";
import type { AnyShell } from "../shell";
import { About } from "./About";
import { Failure } from "./Failure";
import { IconButton } from "./Fields";
import { useChanges, useTheme, useVisibleHeight } from "./hooks";
import { Icon } from "./icons";
import { Loading } from "./Loading";
import { NoteLine } from "./Notes";
import { SettingsPanel } from "./SettingsPanel";
import type { PageData } from "./Stored";
import { StatusLine, type Figure } from "./StatusLine";

export interface LayoutProps {
  shell: AnyShell;
  /** What the page is doing, for the status line: "Answering…"; null when it does nothing. */
  busy: string | null;
  /** Beside the page: an `<aside>`. */
  aside?: ComponentChildren;
  /** Buttons before the title; the page's icon where there are none. */
  leading?: ComponentChildren;
  /** Buttons after those of theme and settings. */
  actions?: ComponentChildren;
  /** The content: a `<Main>`. */
  children: ComponentChildren;
  /** Above the notes: what floats over the content. */
  floating?: ComponentChildren;
  /** Below the notes: lines that come and go, such as `UndoLine` and `ProblemLine`. */
  lines?: ComponentChildren;
  /** Below notes, progress and errors: the page's controls that stay in reach. */
  dock?: ComponentChildren;
  /** The page's own figures of the status line. */
  figures?: readonly Figure[];
  /** The page's own sections of the settings. */
  settings?: ComponentChildren;
  /** Settings that a reset leaves as they are. */
  onReset?: () => void;
  /** What of the reader's is kept here, and can be deleted. */
  data?: readonly PageData[];
  /** The page's own rows of the about box. */
  about?: readonly AboutRow[];
  /** Dialogs of the page. */
  dialogs?: ComponentChildren;
}

export function Layout(props: LayoutProps): JSX.Element {
  const { shell, busy } = props;
  useChanges(shell);
  const shownTheme = useTheme(shell.settings.theme);
  useVisibleHeight();
  const { title } = shell;
  useEffect(() => {
    document.title = title;
  }, [title]);
  const [open, setOpen] = useState<"settings" | "about" | null>(null);
  const { engine, notes } = shell.model.state;
  const otherTheme = shownTheme === "dark" ? "light" : "dark";
  return (
    <div
      class={`app${props.aside === undefined || props.aside === false ? "" : " has-sidebar"}`}
      data-state={pageState(engine, busy !== null)}
      data-testid="app"
    >
      {props.aside}
      <div class="page">
        <header class="bar">
          {props.leading ?? <img class="bar-icon" src="./icon.svg" alt="" />}
          <h1>{title}</h1>
          <div class="bar-actions">
            <IconButton
              icon={otherTheme === "light" ? "sun" : "moon"}
              label={otherTheme === "light" ? "Light theme" : "Dark theme"}
              testId="theme"
              class="theme-toggle"
              onClick={() => shell.changeSettings({ theme: otherTheme })}
            />
            <button
              type="button"
              class="icon-button"
              data-testid="settings"
              title="Settings"
              aria-haspopup="dialog"
              onClick={() => setOpen("settings")}
            >
              <Icon name="settings" />
              <span class="sr-only">Settings</span>
            </button>
            {props.actions}
          </div>
        </header>
        {props.children}
        <footer class="dock">
          <div class="dock-inner">
            {props.floating}
            <div class="dock-lines">
              {notes.map((note) => (
                <NoteLine key={note.id} note={note} onClose={() => shell.model.dismissNote(note.id)} />
              ))}
              {engine.phase === "loading" && <Loading progress={engine.progress} />}
              {engine.phase === "failed" && <Failure failure={engine.failure} shell={shell} />}
              {props.lines}
            </div>
            {props.dock}
            <StatusLine engine={engine} busy={busy} figures={props.figures ?? []} />
          </div>
        </footer>
      </div>
      {open === "settings" && (
        <SettingsPanel
          shell={shell}
          data={props.data ?? []}
          onAbout={() => setOpen("about")}
          onReset={props.onReset ?? (() => shell.resetSettings())}
          onClose={() => setOpen((now) => (now === "settings" ? null : now))}
        >
          {props.settings}
        </SettingsPanel>
      )}
      {open === "about" && <About shell={shell} rows={props.about ?? []} onClose={() => setOpen(null)} />}
      {props.dialogs}
      <div class="sr-only" role="status" aria-live="polite" data-testid="announcement">
        {shell.state.announcement}
      </div>
    </div>
  );
}

interface MainProps {
  children: ComponentChildren;
  /** The element that scrolls. */
  scroller?: RefObject<HTMLElement | null>;
  content?: RefObject<HTMLDivElement | null>;
  /** Wider than a column of text. */
  wide?: boolean;
}

/** The page's content: a column that scrolls. */
export function Main({ children, scroller, content, wide = false }: MainProps): JSX.Element {
  return (
    <main ref={scroller ?? null} class="scroller" tabIndex={0}>
      <div ref={content ?? null} class={wide ? "column wide" : "column"}>
        {children}
      </div>
    </main>
  );
}
