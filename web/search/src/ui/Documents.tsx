import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { FilePicker, formatSecondsLeft, Icon, IconButton } from "tinyweb-shell";
import type { Finder } from "../app/finder";
import type { Doc } from "../app/library";
import { PICTURES } from "../pictures";
import { ACCEPT, nameOf } from "../text/files";
import { Thumbs } from "./Pictures";

const figure = (n: number): string => n.toLocaleString("en");

function count(n: number, one: string): string {
  return `${figure(n)} ${one}${n === 1 ? "" : "s"}`;
}

/** How far a document is. */
export function docText({ passages, done }: Doc, now: boolean, paused: boolean): string {
  if (passages.length > 0 && done === passages.length) return count(passages.length, "passage");
  if (now && passages.length === 0) return "splitting into passages…";
  if (now) return `${figure(done)} of ${count(passages.length, "passage")}…`;
  return `${done > 0 ? `${figure(done)} of ${count(passages.length, "passage")}, ` : ""}${paused ? "stopped" : "waiting"}`;
}

/** The work under way: how far, how long still, stop and go on. */
export function WorkStrip({ finder }: { finder: Finder }): JSX.Element | null {
  const { work, paused, docs } = finder.state;
  if (work !== null) {
    return (
      <div class="strip" data-testid="indexing">
        <div class="strip-text">
          <span>Reading “{work.doc.name}”</span>
          <span class="strip-figures">
            {[`${figure(work.done)} of ${figure(work.total)}`, formatSecondsLeft(work.secondsLeft)].filter(Boolean).join(" · ")}
          </span>
        </div>
        <div class="strip-row">
          <progress
            data-testid="progress"
            max={work.total}
            value={work.done}
            aria-label={finder.readsPictures ? "Pictures and passages read" : "Passages read"}
          />
          <IconButton icon="pause" label="Stop reading" testId="stop" onClick={() => finder.stop()} />
        </div>
      </div>
    );
  }
  if (paused && docs.some(({ done, passages }) => passages.length === 0 || done < passages.length)) {
    return (
      <div class="note note-info" role="status" data-testid="paused">
        <Icon name="pause" />
        <p>Reading was stopped. What has been read can be searched.</p>
        <button type="button" class="button quiet" data-testid="go-on" onClick={() => finder.goOn()}>
          Go on
        </button>
      </div>
    );
  }
  return null;
}

/** Characters from which on what is pasted goes in at once: browsers edit line by line, a book would take minutes. */
const LONG = 10_000;

interface DocumentsProps {
  finder: Finder;
  onFiles: (files: readonly File[]) => void;
  onPicture: (doc: Doc) => void;
}

/** What can be searched, and how more gets there. */
export function Documents({ finder, onFiles, onPicture }: DocumentsProps): JSX.Element {
  const { docs, work, paused } = finder.state;
  const { readsPictures } = finder;
  const pictures = docs.filter(({ picture }) => picture !== undefined);
  const texts = docs.filter(({ picture }) => picture === undefined);
  const [text, setText] = useState("");
  const add = (): void => {
    const given = text;
    setText("");
    void finder.add(nameOf(given), given);
  };
  return (
    <section class="documents" aria-labelledby="documents-title">
      <h2 id="documents-title" class="part-title">
        {readsPictures ? "Your pictures and documents" : "Your documents"}
      </h2>
      {readsPictures && (
        <div class="add-row">
          <FilePicker testId="choose-pictures" icon="image" accept={PICTURES} multiple onFiles={onFiles}>
            Add pictures
          </FilePicker>
        </div>
      )}
      {pictures.length > 0 && (
        <Thumbs pictures={pictures.map((doc) => ({ doc }))} testId="pictures" label="Your pictures" onOpen={onPicture} />
      )}
      <form
        class="add"
        onSubmit={(event) => {
          event.preventDefault();
          add();
        }}
      >
        <label class="sr-only" for="text">
          A text to search
        </label>
        <textarea
          id="text"
          class="input"
          data-testid="text"
          rows={4}
          placeholder="Paste a text here, or drop files anywhere"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onBeforeInput={(event) => {
            const given = event.data ?? event.dataTransfer?.getData("text/plain") ?? "";
            if (given.length < LONG || !event.cancelable) return;
            event.preventDefault();
            const field = event.currentTarget;
            field.setRangeText(given, field.selectionStart, field.selectionEnd, "end");
            setText(field.value);
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && text.trim() !== "") {
              event.preventDefault();
              add();
            }
          }}
        />
        <div class="add-row">
          <button type="submit" class="button primary" data-testid="add" disabled={text.trim() === ""}>
            Add text
          </button>
          <FilePicker testId="choose-file" icon="file" accept={ACCEPT} multiple onFiles={onFiles}>
            Add files
          </FilePicker>
        </div>
      </form>
      <p class="hint">{readsPictures && "JPEG, PNG, WebP. "}Plain text, Markdown, HTML, CSV, JSON. They stay on this device.</p>
      <ul class="document-list" data-testid="documents">
        {texts.map((doc) => (
          <li key={doc.id} data-testid="document">
            <Icon name="file" />
            <span class="document-name">
              {doc.name}
              <small>{docText(work?.doc.id === doc.id ? work.doc : doc, work?.doc.id === doc.id, paused)}</small>
            </span>
            <IconButton
              icon="trash"
              label={`Delete “${doc.name}”`}
              title="Delete"
              testId="delete"
              onClick={() => void finder.remove(doc.id)}
            />
          </li>
        ))}
      </ul>
      {docs.length === 0 && finder.state.opened && !readsPictures && (
        <button type="button" class="button quiet" data-testid="add-example" onClick={() => void finder.addExample()}>
          Add the example document
        </button>
      )}
    </section>
  );
}
