import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { FINE_POINTER, formatParameters, Icon, Layout, Main, quantName, useChanges, useEscape, useMedia, type AboutRow, type Figure, type PageData } from "tinyweb-shell";
import type { Job, Studio } from "../app/studio";
import { Composer } from "./Composer";
import { Controls } from "./Controls";
import { GalleryGrid } from "./GalleryGrid";
import { Stage } from "./Stage";

const UNDO_MS = 8000;

/** What the page is doing, for the status line. */
export function jobText(job: Job): string {
  switch (job.stage) {
    case "waiting":
      return "Waiting for the model…";
    case "loading":
      return "Loading…";
    case "text":
      return "Reading the prompt…";
    case "image":
      return "Reading the picture…";
    case "steps":
      return `Drawing… step ${job.step} of ${job.steps}`;
    case "decoding":
      return "Finishing…";
  }
}

function UndoLine({ studio, prompt }: { studio: Studio; prompt: string }): JSX.Element {
  useEffect(() => {
    const timer = setTimeout(() => studio.forgetRemoved(), UNDO_MS);
    return () => clearTimeout(timer);
  }, [studio]);
  return (
    <div class="note note-info" role="status" data-testid="undo-note">
      <Icon name="trash" />
      <p>Deleted “{prompt}”.</p>
      <button type="button" class="button quiet" data-testid="undo" onClick={() => void studio.undoRemove()}>
        Undo
      </button>
    </div>
  );
}

/** Files that are dragged over the page or pasted into it. */
function useFiles(take: (file: File) => void): boolean {
  const [over, setOver] = useState(false);
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
    const onDrag = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const onLeave = (event: DragEvent): void => {
      if (event.relatedTarget === null) setOver(false);
    };
    const onDrop = (event: DragEvent): void => {
      setOver(false);
      const file = event.dataTransfer?.files[0];
      if (!hasFiles(event)) return;
      event.preventDefault();
      if (file !== undefined) latest.current(file);
    };
    const onPaste = (event: ClipboardEvent): void => {
      const file = [...(event.clipboardData?.files ?? [])].find(({ type }) => type.startsWith("image/"));
      if (file === undefined) return;
      event.preventDefault();
      latest.current(file);
    };
    document.addEventListener("dragover", onDrag);
    document.addEventListener("dragleave", onLeave);
    document.addEventListener("drop", onDrop);
    document.addEventListener("paste", onPaste);
    return () => {
      document.removeEventListener("dragover", onDrag);
      document.removeEventListener("dragleave", onLeave);
      document.removeEventListener("drop", onDrop);
      document.removeEventListener("paste", onPaste);
    };
  }, []);
  return over;
}

export function App({ studio }: { studio: Studio }): JSX.Element {
  useChanges(studio);
  const { state, shell } = studio;
  const { job, deleted } = state;
  const { engine } = shell.model.state;
  const finePointer = useMedia(FINE_POINTER);
  const prompt = useRef<HTMLTextAreaElement>(null);
  const scroller = useRef<HTMLElement>(null);

  const generate = (): void => {
    if (!studio.generate()) return;
    scroller.current?.scrollTo({ top: 0, behavior: "smooth" });
    // On a phone the keyboard goes away, so that the picture can be seen.
    if (!finePointer) prompt.current?.blur();
  };
  const toPrompt = (): void => {
    if (finePointer) prompt.current?.focus();
  };
  useEffect(toPrompt, [finePointer]);

  useEscape(() => studio.stop());
  const latest = useRef(generate);
  latest.current = generate;
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing || document.querySelector("dialog[open]") !== null) return;
      event.preventDefault();
      latest.current();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
  const dragging = useFiles((file) => void studio.take(file, file.name === "" ? "The picture" : file.name));

  const info = engine.phase === "ready" ? (engine.info as (typeof studio.shell.model.state.engine & { phase: "ready" })["info"]) : null;
  const step = info?.times?.step ?? 0;
  const figures: Figure[] = step > 0 ? [{ key: "speed", text: step < 1000 ? `${Math.round(step)} ms per step` : `${(step / 1000).toFixed(1)} s per step` }] : [];
  const about: AboutRow[] = [];
  if (info !== null) {
    about.push(["Model", info.model]);
    const sizes = [info.parameters > 0 ? formatParameters(info.parameters) : "", info.quant === "" ? "" : quantName(info.quant)];
    if (sizes.some((size) => size !== "")) about.push(["Size", sizes.filter((size) => size !== "").join(", ")]);
    if (info.times) about.push(["Last picture", `${Math.round(info.times.text)} ms for the prompt, ${Math.round(step)} ms for a step, ${Math.round(info.times.decode)} ms at the end`]);
  }
  const data: PageData = { key: "all", one: "picture", many: "pictures", count: state.gallery.length, clear: () => void studio.removeAll() };

  return (
    <Layout
      shell={shell}
      busy={job === null ? null : jobText(job)}
      floating={deleted !== null && <UndoLine studio={studio} prompt={deleted.picture.recipe.prompt} key={deleted.picture.id} />}
      dock={
        <>
          {state.problem !== null && (
            <div class="failure" role="alert" data-testid="error" data-code={state.problem.code}>
              <Icon name="alert" />
              <div>
                <p>{state.problem.text}</p>
              </div>
              <button type="button" class="button quiet" data-testid="close-error" onClick={() => studio.closeProblem()}>
                Close
              </button>
            </div>
          )}
          <Composer studio={studio} input={prompt} onGenerate={generate} />
        </>
      }
      figures={figures}
      data={[data]}
      about={about}
      dialogs={
        dragging && (
          <div class="drop" aria-hidden="true">
            <p>
              <Icon name="image" />
              Drop a picture to begin from, or one with settings inside
            </p>
          </div>
        )
      }
    >
      <Main wide scroller={scroller}>
        <div class="studio">
          <Stage
            studio={studio}
            waiting={engine.phase === "loading"}
            onExample={(example) => {
              studio.edit({ prompt: example });
              toPrompt();
            }}
          />
          <Controls studio={studio} />
          <GalleryGrid studio={studio} onOpen={() => scroller.current?.scrollTo({ top: 0, behavior: "smooth" })} />
        </div>
      </Main>
    </Layout>
  );
}
