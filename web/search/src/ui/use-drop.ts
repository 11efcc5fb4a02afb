import { useEffect, useRef, useState } from "preact/hooks";

/** Files that are dropped on the page, or pasted into it. @returns whether some are held over it */
export function useDrop(take: (files: File[]) => void): boolean {
  const [over, setOver] = useState(false);
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
    const listeners: { [Name in "dragover" | "dragleave" | "drop" | "paste"]: (event: DocumentEventMap[Name]) => void } = {
      dragover: (event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        setOver(true);
      },
      dragleave: (event) => {
        if (event.relatedTarget === null) setOver(false);
      },
      drop: (event) => {
        setOver(false);
        if (!hasFiles(event)) return;
        event.preventDefault();
        latest.current([...(event.dataTransfer?.files ?? [])]);
      },
      paste: (event) => {
        const files = [...(event.clipboardData?.files ?? [])];
        if (files.length === 0) return;
        event.preventDefault();
        latest.current(files);
      },
    };
    const all = Object.entries(listeners) as [string, EventListener][];
    for (const [name, listener] of all) document.addEventListener(name, listener);
    return () => {
      for (const [name, listener] of all) document.removeEventListener(name, listener);
    };
  }, []);
  return over;
}
