import { Fragment, type JSX } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { copyText, formatSpeed, Icon, isBlank, useCopy } from "tinyweb-shell";
import { EMPTY_ANSWER, isEmptyAnswer, type ChatApp } from "../app/chat-app";
import { displayName } from "../app/facts";
import type { State } from "../app/state";
import type { Message } from "../store/conversations";
import { patchChildren, renderMarkdown } from "../text/markdown";
import { Mark } from "./Mark";

function CopyButton({ text, testId }: { text: string; testId: string }): JSX.Element {
  const [copied, copy] = useCopy();
  return (
    <button type="button" class="icon-button" data-testid={testId} title="Copy" onClick={() => copy(text)}>
      <Icon name={copied ? "check" : "copy"} />
      <span class="sr-only">{copied ? "Copied" : "Copy message"}</span>
    </button>
  );
}

/** The buttons inside code blocks are part of the Markdown's nodes; one listener serves them all. */
function copyCode(event: MouseEvent): void {
  const button = (event.target as Element).closest(".code-copy");
  const code = button?.parentElement?.querySelector("pre");
  if (!button || !code) return;
  void copyText(code.textContent.replace(/\n$/u, "")).then((done) => {
    if (!done) return;
    button.classList.add("copied");
    button.setAttribute("aria-label", "Copied");
    setTimeout(() => {
      button.classList.remove("copied");
      button.setAttribute("aria-label", "Copy code");
    }, 1600);
  });
}

/** What can be seen although it has no text. */
const DRAWN = "hr, input, pre, table";

function Answer({ message, phase }: Pick<AssistantProps, "message" | "phase">): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  const { nodes, text } = useMemo(() => {
    const rendered = renderMarkdown(message.text);
    return { nodes: rendered, text: rendered.querySelector(DRAWN) === null ? rendered.textContent : message.text };
  }, [message.text]);
  useLayoutEffect(() => {
    if (element.current !== null) patchChildren(element.current, nodes);
  }, [nodes]);
  const empty = phase === null && isEmptyAnswer({ ...message, text });
  return (
    <>
      <div
        ref={element}
        class={`prose${phase === "writing" ? " writing" : ""}`}
        data-testid="message-assistant"
        aria-busy={phase === "writing"}
        hidden={empty}
        onClick={copyCode}
      />
      {empty && (
        <p class="empty-answer" data-testid="empty-answer">
          {EMPTY_ANSWER}
        </p>
      )}
    </>
  );
}

function endingText(message: Message): string {
  switch (message.ending) {
    case "stopped":
      return "Stopped";
    case "length":
      return "Cut off at the longest answer set";
    case "context":
      return "Cut off: the model cannot hold a longer conversation";
    default: {
      const speed = message.stats?.tokensPerSecond ?? 0;
      return message.stats === undefined || speed <= 0
        ? ""
        : `${message.stats.tokens} ${message.stats.tokens === 1 ? "token" : "tokens"}, ${formatSpeed(speed)}`;
    }
  }
}

interface AssistantProps {
  message: Message;
  name: string;
  /** Null when this message is finished. */
  phase: "reading" | "writing" | null;
  onRegenerate: (() => void) | null;
}

function AssistantMessage({ message, name, phase, onRegenerate }: AssistantProps): JSX.Element {
  return (
    <article class="message from-assistant">
      <h3 class="sr-only">{name}</h3>
      {phase === "reading" && (
        <div class="thinking">
          <Mark size="small" />
          <span class="dots" role="img" aria-label="Thinking">
            <i />
            <i />
            <i />
          </span>
        </div>
      )}
      <Answer message={message} phase={phase} />
      {message.problem !== undefined && (
        <p class="problem" role="alert" data-testid="error">
          <Icon name="alert" />
          {message.problem}
        </p>
      )}
      {phase === null && (
        <div class="message-actions">
          {!isBlank(message.text) && <CopyButton text={message.text} testId="copy" />}
          {onRegenerate !== null && (
            <button type="button" class="icon-button" data-testid="regenerate" title="Answer again" onClick={onRegenerate}>
              <Icon name="again" />
              <span class="sr-only">Answer again</span>
            </button>
          )}
          <span class="message-note">{endingText(message)}</span>
        </div>
      )}
    </article>
  );
}

function UserMessage({ message }: { message: Message }): JSX.Element {
  return (
    <article class="message from-user">
      <h3 class="sr-only">You</h3>
      <CopyButton text={message.text} testId="copy-user" />
      <div class="bubble" data-testid="message-user">
        {message.text}
      </div>
    </article>
  );
}

/** Where the model's memory begins when it has dropped the first `count` messages; blank ones were never sent. */
function indexAfter(messages: readonly Message[], count: number): number {
  let left = count;
  return messages.findIndex((message) => !isBlank(message.text) && left-- === 0);
}

export function Messages({ app, state }: { app: ChatApp; state: State }): JSX.Element {
  const { messages } = state.conversation;
  const name = displayName(state.facts);
  const last = messages.at(-1);
  const firstKept = indexAfter(messages, state.forgotten);
  const idle = state.answering === null && !state.queued;
  return (
    <section class="messages" aria-labelledby="conversation-title">
      <h2 id="conversation-title" class="sr-only">
        Conversation
      </h2>
      {messages.map((message, index) => (
        <Fragment key={message.id}>
          {index > 0 && index === firstKept && (
            <p class="divider" data-testid="forgotten">
              The model no longer remembers what is above
            </p>
          )}
          {message.role === "user" ? (
            <UserMessage message={message} />
          ) : (
            <AssistantMessage
              message={message}
              name={name}
              phase={state.answering?.messageId === message.id ? state.answering.phase : null}
              onRegenerate={idle && message === last ? () => app.regenerate() : null}
            />
          )}
        </Fragment>
      ))}
      {state.queued && (
        <p class="waiting" data-testid="queued">
          <Mark size="small" awake={false} />
          {state.engine.phase === "failed" ? "Your message waits for the model." : "The answer comes as soon as the model is ready."}
        </p>
      )}
      {idle && last?.role === "user" && (
        <div class="message-actions unanswered">
          <button type="button" class="button" data-testid="regenerate" onClick={() => app.regenerate()}>
            <Icon name="again" />
            Answer this
          </button>
        </div>
      )}
    </section>
  );
}
