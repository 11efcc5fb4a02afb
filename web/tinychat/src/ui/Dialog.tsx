import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface DialogProps {
  /** "sheet": settings; "drawer": the list of conversations on narrow windows. */
  kind: "sheet" | "drawer";
  labelledBy: string;
  testId: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** A modal dialog: the browser keeps focus inside, closes it with Esc and gives focus back. */
export function Dialog({ kind, labelledBy, testId, onClose, children }: DialogProps): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
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
