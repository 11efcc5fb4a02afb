import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Dialog, DialogHead, Icon, useCopy } from "tinyweb-shell";
import type { Hit } from "../app/rank";
import { highlight } from "../text/words";

/** Text shown before and after a passage. */
const AROUND = 6000;

/** A passage where it stands in its document. */
export function PassageDialog({
  hit,
  stems,
  onSimilar,
  onClose,
}: {
  hit: Hit;
  stems: ReadonlySet<string>;
  onSimilar: () => void;
  onClose: () => void;
}): JSX.Element {
  const { doc, index } = hit;
  const { start, end } = doc.passages[index] ?? { start: 0, end: 0 };
  const place = useRef<HTMLElement>(null);
  const [copied, copy] = useCopy();
  useEffect(() => place.current?.scrollIntoView({ block: "center" }), []);
  const from = Math.max(0, start - AROUND);
  const to = Math.min(doc.text.length, end + AROUND);
  return (
    <Dialog kind="sheet" labelledBy="passage-title" testId="passage-dialog" onClose={onClose}>
      <DialogHead id="passage-title" title={doc.name} closeTestId="close-passage" closeLabel="Close" onClose={onClose} />
      <div class="dialog-content passage-text" tabIndex={0} role="region" aria-label="The document around the passage">
        <p>
          {from > 0 && "… "}
          {doc.text.slice(from, start)}
          <strong ref={place} class="here" data-testid="passage">
            {highlight(doc.text.slice(start, end), stems).map(({ text, marked }) => (marked ? <mark>{text}</mark> : text))}
          </strong>
          {doc.text.slice(end, to)}
          {to < doc.text.length && " …"}
        </p>
      </div>
      <div class="passage-actions">
        <button type="button" class="button" data-testid="similar-here" onClick={onSimilar}>
          <Icon name="search" />
          Find similar
        </button>
        <button type="button" class="button" data-testid="copy" onClick={() => copy(doc.text.slice(start, end))}>
          <Icon name={copied ? "check" : "copy"} />
          {copied ? "Copied" : "Copy"}
        </button>
      </div>
    </Dialog>
  );
}
