import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { IconButton } from "./Fields";

interface DialogProps {
  /** "sheet": from below on phones, a card elsewhere; "drawer": from the left. */
  kind: "sheet" | "drawer";
  labelledBy: string;
  testId: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** A modal dialog: the browser keeps focus inside, closes it with Esc and gives focus back. */
export function Dialog({ kind, labelledBy, testId, onClose, children }: DialogProps): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  // before anything is drawn: there is no moment in which keys go to the page behind
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      class={kind}
      data-testid={testId}
      aria-labelledby={labelledBy}
      onClose={onClose}
      onClick={(event) => {
        // The backdrop belongs to the dialog element itself; its content is one child that covers the rest.
        if (event.target === event.currentTarget) event.currentTarget.close();
      }}
    >
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}

interface DialogHeadProps {
  /** Of the heading: what `labelledBy` names. */
  id: string;
  title: string;
  closeTestId: string;
  closeLabel: string;
  onClose: () => void;
}

export function DialogHead({ id, title, closeTestId, closeLabel, onClose }: DialogHeadProps): JSX.Element {
  return (
    <header class="dialog-head">
      <h2 id={id}>{title}</h2>
      <IconButton icon="close" label={closeLabel} title="Close (Esc)" testId={closeTestId} onClick={onClose} />
    </header>
  );
}
