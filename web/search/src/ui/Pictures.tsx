import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Dialog, DialogHead, Icon } from "tinyweb-shell";
import type { Doc } from "../app/library";
import { isRead } from "../app/rank";

/** Thumbnails shown before all are asked for: of what was found, and of what there is. */
const FEW_FOUND = 24;
const FEW = 12;

/** A picture that is kept. `alt` "": what it is is said beside it. */
export function Picture({ doc, alt = "" }: { doc: Doc; alt?: string }): JSX.Element {
  const [address, setAddress] = useState<string>();
  const { picture } = doc;
  useEffect(() => {
    if (picture === undefined) return;
    const made = URL.createObjectURL(picture);
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [picture]);
  return <img src={address} alt={alt} decoding="async" draggable={false} />;
}

export interface Found {
  doc: Doc;
  /** 0 … 1. */
  score?: number;
}

/** Pictures side by side, each a button that opens it. @param testId of the list */
export function Thumbs({
  pictures,
  testId,
  label,
  found = false,
  onOpen,
}: {
  pictures: readonly Found[];
  testId: string;
  label: string;
  /** Results: arrows go through them. */
  found?: boolean;
  onOpen: (doc: Doc) => void;
}): JSX.Element {
  const [all, setAll] = useState(false);
  const shown = all ? pictures : pictures.slice(0, found ? FEW_FOUND : FEW);
  return (
    <>
      <ul class={found ? "thumbs found" : "thumbs"} data-testid={testId} aria-label={label}>
        {shown.map(({ doc, score }) => {
          const waits = doc.done === 0;
          return (
            <li key={doc.id} data-testid="picture" data-score={score?.toFixed(3)}>
              <button
                type="button"
                class={`${found ? "result-open " : ""}thumb${waits ? " waits" : ""}`}
                data-testid="open-picture"
                title={doc.name}
                aria-label={waits ? `${doc.name}, not read yet` : doc.name}
                onClick={() => onOpen(doc)}
              >
                <Picture doc={doc} />
              </button>
            </li>
          );
        })}
      </ul>
      {shown.length < pictures.length && (
        <button type="button" class="button quiet" data-testid="all-pictures" onClick={() => setAll(true)}>
          Show all {pictures.length.toLocaleString("en")}
        </button>
      )}
    </>
  );
}

/** A picture as large as the page has room. */
export function PictureDialog({
  doc,
  onSimilar,
  onDelete,
  onClose,
}: {
  doc: Doc;
  onSimilar: () => void;
  onDelete: () => void;
  onClose: () => void;
}): JSX.Element {
  return (
    <Dialog kind="sheet" labelledBy="picture-title" testId="picture-dialog" onClose={onClose}>
      <DialogHead id="picture-title" title={doc.name} closeTestId="close-picture" closeLabel="Close" onClose={onClose} />
      <div class="dialog-content picture-view" tabIndex={0} role="region" aria-label="The picture">
        <Picture doc={doc} alt={doc.name} />
      </div>
      <div class="passage-actions">
        <button type="button" class="button" data-testid="similar-picture" disabled={!isRead(doc)} onClick={onSimilar}>
          <Icon name="search" />
          Find similar
        </button>
        <button type="button" class="button" data-testid="delete-picture" onClick={onDelete}>
          <Icon name="trash" />
          Delete
        </button>
      </div>
    </Dialog>
  );
}
