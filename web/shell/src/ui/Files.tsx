/** How files come into a page: chosen, dropped, pasted. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./icons";

interface FileDropProps {
  icon?: IconName;
  /** Shown while files are held over the page: "Drop files to search them". */
  text: string;
  /** Which pasted files are meant for the page; what else is pasted goes where the cursor is. All, unless given. */
  pastes?: (file: File) => boolean;
  /** At least one file. */
  onFiles: (files: File[]) => void;
}

/** Takes files that are dropped anywhere on the page or pasted into it; shows that they can be dropped. */
export function FileDrop({ icon = "upload", text, pastes = () => true, onFiles }: FileDropProps): JSX.Element | null {
  const [over, setOver] = useState(false);
  const latest = useRef({ pastes, onFiles });
  latest.current = { pastes, onFiles };
  useEffect(() => {
    const stop = new AbortController();
    const on = <Name extends "dragover" | "dragleave" | "drop" | "paste">(
      name: Name,
      handle: (event: DocumentEventMap[Name]) => void,
    ): void => document.addEventListener(name, handle, { signal: stop.signal });
    const offered = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") === true;
    const receive = (event: Event, files: File[]): void => {
      if (files.length === 0) return;
      event.preventDefault();
      latest.current.onFiles(files);
    };
    on("dragover", (event) => {
      if (!offered(event)) return;
      event.preventDefault();
      setOver(true);
    });
    on("dragleave", (event) => {
      if (event.relatedTarget === null) setOver(false);
    });
    on("drop", (event) => {
      setOver(false);
      if (offered(event)) event.preventDefault(); // else the browser would leave the page for the file
      receive(event, [...(event.dataTransfer?.files ?? [])]);
    });
    on("paste", (event) => receive(event, [...(event.clipboardData?.files ?? [])].filter(latest.current.pastes)));
    return () => stop.abort();
  }, []);
  if (!over) return null;
  return (
    <div class="drop" aria-hidden="true">
      <p>
        <Icon name={icon} />
        {text}
      </p>
    </div>
  );
}

interface FilePickerProps {
  /** Of the button; the field that takes the file has "file". */
  testId: string;
  icon: IconName;
  /** As in `<input accept>`. */
  accept: string;
  multiple?: boolean;
  /** What the button says. */
  children: ComponentChildren;
  /** At least one file. */
  onFiles: (files: File[]) => void;
}

/** A button that lets the reader choose files. */
export function FilePicker({ testId, icon, accept, multiple = false, children, onFiles }: FilePickerProps): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <button type="button" class="button" data-testid={testId} onClick={() => input.current?.click()}>
        <Icon name={icon} />
        <span>{children}</span>
      </button>
      <input
        ref={input}
        type="file"
        hidden
        data-testid="file"
        accept={accept}
        multiple={multiple}
        onChange={(event) => {
          const files = [...(event.currentTarget.files ?? [])];
          event.currentTarget.value = ""; // the same file can be chosen again
          if (files.length > 0) onFiles(files);
        }}
      />
    </>
  );
}
