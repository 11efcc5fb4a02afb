import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import {
  Composer,
  FileDrop,
  FINE_POINTER,
  Layout,
  Main,
  modelRows,
  ProblemLine,
  scrollToTop,
  UndoLine,
  useChanges,
  useEscape,
  useMedia,
  type AboutRow,
  type Figure,
  type PageData,
} from "tinyweb-shell";
import { MAX_PROMPT } from "../app/draft";
import type { Job, Studio } from "../app/studio";
import { Controls } from "./Controls";
import { GalleryGrid } from "./GalleryGrid";
import { Stage } from "./Stage";

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
    scrollToTop(scroller.current);
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
      if (
        event.key !== "Enter" ||
        event.defaultPrevented ||
        !(event.ctrlKey || event.metaKey) ||
        event.isComposing ||
        document.querySelector("dialog[open]") !== null
      )
        return;
      event.preventDefault();
      latest.current();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);

  const info = engine.phase === "ready" ? (engine.info as (typeof studio.shell.model.state.engine & { phase: "ready" })["info"]) : null;
  const step = info?.times?.step ?? 0;
  const figures: Figure[] =
    step > 0 ? [{ key: "speed", text: step < 1000 ? `${Math.round(step)} ms per step` : `${(step / 1000).toFixed(1)} s per step` }] : [];
  const about: AboutRow[] = info === null ? [] : modelRows(info.model, { parameters: info.parameters, quant: info.quant });
  if (info?.times)
    about.push([
      "Last picture",
      `${Math.round(info.times.text)} ms for the prompt, ${Math.round(step)} ms for a step, ${Math.round(info.times.decode)} ms at the end`,
    ]);
  const data: PageData = {
    key: "all",
    one: "picture",
    many: "pictures",
    count: state.gallery.length,
    clear: () => void studio.removeAll(),
  };

  return (
    <Layout
      shell={shell}
      busy={job === null ? null : jobText(job)}
      lines={
        <>
          {deleted !== null && (
            <UndoLine
              key={deleted.picture.id}
              title={deleted.picture.recipe.prompt}
              onUndo={() => void studio.undoRemove()}
              onForget={() => studio.forgetRemoved()}
            />
          )}
          <ProblemLine problem={state.problem} onClose={() => studio.closeProblem()} />
        </>
      }
      dock={
        <Composer
          input={prompt}
          text={state.draft.prompt}
          label="What to paint"
          placeholder="What shall be painted?"
          action="Paint"
          testId="generate"
          named
          maxLines={5}
          maxLength={MAX_PROMPT}
          busy={studio.busy}
          onText={(text) => studio.edit({ prompt: text })}
          onSend={generate}
          onStop={() => studio.stop()}
        />
      }
      figures={figures}
      data={[data]}
      about={about}
      dialogs={
        <FileDrop
          icon="image"
          text="Drop a picture to begin from, or one with settings inside"
          pastes={({ type }) => type.startsWith("image/")}
          onFiles={([file]) => file !== undefined && void studio.take(file, file.name === "" ? "The picture" : file.name)}
        />
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
          <GalleryGrid studio={studio} onOpen={() => scrollToTop(scroller.current)} />
        </div>
      </Main>
    </Layout>
  );
}
