import type { JSX } from "preact";
import { Icon } from "tinyweb-shell";
import type { ChatApp } from "../app/chat-app";
import type { State } from "../app/state";
import { Mark } from "./Mark";

interface SidebarProps {
  app: ChatApp;
  state: State;
  headingId: string;
  onChosen: () => void;
  /** Null where the list stays beside the conversation. */
  onClose: (() => void) | null;
}

export function Sidebar({ app, state, headingId, onChosen, onClose }: SidebarProps): JSX.Element {
  return (
    <div class="sidebar-inner">
      <div class="sidebar-head">
        <Mark size="small" />
        <h2 id={headingId}>Conversations</h2>
        {onClose !== null && (
          <button type="button" class="icon-button" onClick={onClose} title="Close">
            <Icon name="close" />
            <span class="sr-only">Close the list</span>
          </button>
        )}
      </div>
      {state.history.length === 0 ? (
        <p class="sidebar-empty">What you talk about is kept here, on this device only.</p>
      ) : (
        <ul class="history" data-testid="history">
          {state.history.map((entry) => (
            <li key={entry.id} class={entry.id === state.conversation.id ? "current" : ""}>
              <button
                type="button"
                class="history-open"
                aria-current={entry.id === state.conversation.id ? "true" : undefined}
                onClick={() => {
                  app.open(entry.id);
                  onChosen();
                }}
              >
                {entry.title}
              </button>
              <button
                type="button"
                class="icon-button history-delete"
                title="Delete"
                aria-label={`Delete “${entry.title}”`}
                onClick={() => app.remove(entry.id)}
              >
                <Icon name="trash" />
              </button>
            </li>
          ))}
        </ul>
      )}
      <p class="sidebar-foot">
        <Icon name="lock" />
        {app.keepsConversations
          ? "Everything stays on this device."
          : "This browser blocks storage: conversations last until the page is closed."}
      </p>
    </div>
  );
}
