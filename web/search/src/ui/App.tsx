import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import {
  FileDrop,
  FINE_POINTER,
  Icon,
  IconButton,
  Layout,
  Main,
  modelRows,
  ProblemLine,
  useChanges,
  useMedia,
  type AboutRow,
  type Figure,
  type PageData,
} from "tinyweb-shell";
import type { Finder } from "../app/finder";
import type { Doc } from "../app/library";
import type { Hit } from "../app/rank";
import { factsOf, type EmbedInfo } from "../model-api";
import { copyOf, isPicture } from "../pictures";
import { EXAMPLE_NAME, EXAMPLE_QUERIES } from "../text/example";
import { FileError, textOfFile } from "../text/files";
import { Documents, WorkStrip } from "./Documents";
import { PassageDialog } from "./PassageDialog";
import { PictureDialog } from "./Pictures";
import { LikeLine, Results } from "./Results";

/** Files that are named where more could not be read. */
const MOST_REFUSALS = 4;

async function addFiles(finder: Finder, files: readonly File[]): Promise<void> {
  const refused: string[] = [];
  for (const file of files) {
    try {
      if (finder.readsPictures && isPicture(file)) await finder.addPicture(file.name, file, await copyOf(file));
      else await finder.add(file.name, await textOfFile(file));
    } catch (error) {
      refused.push(error instanceof FileError ? error.message : `“${file.name}” could not be read.`);
    }
  }
  const more = refused.length - MOST_REFUSALS;
  if (more > 0) refused.splice(MOST_REFUSALS, more, `${more} more could not be read.`);
  if (refused.length > 0) finder.fail("bad-file", refused.join(" "));
}

/** "/" goes to the query, arrows go through the results, Esc clears the query. */
function useKeys(input: { current: HTMLInputElement | null }, clear: () => void): void {
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null) return;
      const target = event.target as HTMLElement;
      const writing = target.matches("input:not([type=file]), textarea, select");
      if (event.key === "/" && !writing) {
        event.preventDefault();
        input.current?.focus();
        input.current?.select();
      } else if (event.key === "Escape" && target === input.current) {
        event.preventDefault();
        clear();
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const items = [...document.querySelectorAll<HTMLElement>(".result-open")];
        const at = items.indexOf(target);
        if (items.length === 0 || (at < 0 && target !== input.current)) return;
        event.preventDefault();
        const next = event.key === "ArrowDown" ? Math.min(at + 1, items.length - 1) : at - 1;
        if (next < 0) input.current?.focus();
        else items[next]?.focus();
      }
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
}

export function App({ finder }: { finder: Finder }): JSX.Element {
  useChanges(finder);
  const { state, shell } = finder;
  const { engine } = shell.model.state;
  const finePointer = useMedia(FINE_POINTER);
  const input = useRef<HTMLInputElement>(null);
  const scroller = useRef<HTMLElement>(null);
  const [opened, setOpened] = useState<Hit | null>(null);
  const [seen, setSeen] = useState<Doc | null>(null);
  const looking = state.query.trim() !== "" || state.like !== null;

  const toQuery = (): void => {
    if (finePointer) input.current?.focus();
  };
  useEffect(toQuery, [finePointer]);
  useKeys(input, () => finder.query(""));
  useEffect(() => scroller.current?.scrollTo({ top: 0 }), [state.query, state.like]);

  const info = engine.phase === "ready" ? (engine.info as EmbedInfo) : null;
  const facts = factsOf(shell.model.state.facts);
  const { readsPictures } = finder;
  const pictures = state.docs.filter(({ picture, done }) => picture !== undefined && done > 0).length;
  const passages = state.docs.reduce((sum, { done }) => sum + done, 0) - pictures;
  const figures: Figure[] = [
    { key: "picture", count: pictures },
    { key: "passage", count: passages },
  ]
    .filter(({ count }) => count > 0)
    .map(({ key, count }) => ({ key: `${key}s`, text: `${count.toLocaleString("en")} ${key}${count === 1 ? "" : "s"}` }));
  const about: AboutRow[] = info === null ? [] : [...modelRows(info.model, facts), ["Vectors", `${info.dimensions} numbers`]];
  const [one, many] = readsPictures ? ["picture or document", "pictures and documents"] : ["document", "documents"];
  const data: PageData = { key: "all", one, many, count: state.docs.length, clear: () => void finder.removeAll() };
  const example = state.docs.length === 1 && state.docs[0]?.name === EXAMPLE_NAME;

  return (
    <Layout
      shell={shell}
      busy={state.work === null ? null : readsPictures ? "Reading your pictures…" : "Reading your documents…"}
      lines={
        <>
          <ProblemLine problem={state.problem} onClose={() => finder.closeProblem()} />
          <WorkStrip finder={finder} />
        </>
      }
      figures={figures}
      data={[data]}
      about={about}
      dialogs={
        <>
          {opened !== null && (
            <PassageDialog
              hit={opened}
              stems={finder.marked}
              onSimilar={() => {
                finder.similar(opened);
                setOpened(null);
              }}
              onClose={() => setOpened(null)}
            />
          )}
          {seen !== null && (
            <PictureDialog
              doc={seen}
              onSimilar={() => {
                finder.similar({ doc: seen, index: 0 });
                setSeen(null);
              }}
              onDelete={() => {
                void finder.remove(seen.id);
                setSeen(null);
              }}
              onClose={() => setSeen(null)}
            />
          )}
          <FileDrop text="Drop files to search them" onFiles={(files) => void addFiles(finder, files)} />
        </>
      }
    >
      <Main wide scroller={scroller}>
        <div class="search-page">
          <div class="search-column">
            <form
              role="search"
              class="composer query"
              onSubmit={(event) => {
                event.preventDefault();
                document.querySelector<HTMLElement>(".result-open")?.click();
              }}
            >
              <Icon name="search" />
              <label class="sr-only" for="query">
                What to look for
              </label>
              <input
                ref={input}
                id="query"
                data-testid="query"
                type="text"
                inputMode="search"
                enterkeyhint="search"
                autocomplete="off"
                autocapitalize="off"
                spellcheck={false}
                placeholder="Search in your own words"
                aria-keyshortcuts="/"
                value={state.query}
                onInput={(event) => finder.query(event.currentTarget.value)}
              />
              {state.query !== "" && (
                <IconButton
                  icon="close"
                  label="Clear"
                  title="Clear (Esc)"
                  testId="clear"
                  onClick={() => {
                    finder.query("");
                    input.current?.focus();
                  }}
                />
              )}
            </form>
            {state.like !== null && (
              <LikeLine
                text={state.like.text}
                onClose={() => {
                  finder.query("");
                  toQuery();
                }}
              />
            )}
            {looking ? (
              <Results finder={finder} onOpen={setOpened} onPicture={setSeen} />
            ) : (
              <div class="welcome" data-testid="welcome">
                <h2>{readsPictures ? "Finds pictures by what they show" : "Finds what you mean, not only what you type"}</h2>
                <p>
                  {readsPictures
                    ? "Add pictures, then say in your own words what you look for: the model compares it with what each of them shows. "
                    : "Ask in your own words: the model compares the meaning of your question with every passage of your documents. "}
                  Nothing leaves this device.
                </p>
                {(example || state.docs.some(({ name }) => name === EXAMPLE_NAME)) && (
                  <>
                    <p class="try">Try it with the example:</p>
                    <div class="examples">
                      {EXAMPLE_QUERIES.map((query) => (
                        <button
                          key={query}
                          type="button"
                          class="pill"
                          data-testid="example"
                          onClick={() => {
                            finder.query(query);
                            toQuery();
                          }}
                        >
                          {query}
                        </button>
                      ))}
                    </div>
                  </>
                )}
              </div>
            )}
          </div>
          <Documents finder={finder} onFiles={(files) => void addFiles(finder, files)} onPicture={setSeen} />
        </div>
      </Main>
    </Layout>
  );
}
