/** Lines above the page's controls: what happened, what was deleted, what went wrong with one run. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { Note } from "../model/notes";
import { IconButton } from "./Fields";
import { Icon } from "./icons";

export function NoteLine({ note, onClose }: { note: Note; onClose: () => void }): JSX.Element {
  return (
    <div class={`note note-${note.tone}`} role="status" data-testid="note">
      <Icon name={note.tone === "good" ? "check" : "info"} />
      <p>
        {note.title !== undefined && <strong>{note.title}</strong>}
        {note.text}
      </p>
      {note.action !== undefined && (
        <button type="button" class="button quiet" data-testid={note.action.testId} onClick={() => note.action?.act()}>
          {note.action.label}
        </button>
      )}
      <IconButton icon="close" label="Close this note" title="Close" testId="dismiss" onClick={onClose} />
    </div>
  );
}

const UNDO_MS = 8000;

interface UndoLineProps {
  /** What was deleted, in its own words. */
  title: string;
  onUndo: () => void;
  /** Called when there was time enough. */
  onForget: () => void;
}

/** Says what was deleted, and brings it back for a while. Give it a `key` that names what was deleted. */
export function UndoLine({ title, onUndo, onForget }: UndoLineProps): JSX.Element {
  useEffect(() => {
    const timer = setTimeout(onForget, UNDO_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class="note note-info" role="status" data-testid="undo-note">
      <Icon name="trash" />
      <p>Deleted “{title}”.</p>
      <button type="button" class="button quiet" data-testid="undo" onClick={onUndo}>
        Undo
      </button>
    </div>
  );
}

interface ProblemLineProps {
  /** Null while all is well: then nothing is shown. */
  problem: { code: string; text: string } | null;
  onClose: () => void;
}

/** Why one thing could not be done, while the page goes on. */
export function ProblemLine({ problem, onClose }: ProblemLineProps): JSX.Element | null {
  if (problem === null) return null;
  return (
    <div class="failure" role="alert" data-testid="error" data-code={problem.code}>
      <Icon name="alert" />
      <p>{problem.text}</p>
      <IconButton icon="close" label="Close this message" title="Close" testId="close-error" onClick={onClose} />
    </div>
  );
}
