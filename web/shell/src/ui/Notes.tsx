/** Notes: what happened without being an error. */

import type { JSX } from "preact";
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
