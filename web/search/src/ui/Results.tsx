import type { JSX } from "preact";
import { IconButton } from "tinyweb-shell";
import type { Finder } from "../app/finder";
import type { Doc } from "../app/library";
import type { Hit } from "../app/rank";
import { highlight } from "../text/words";
import { Thumbs } from "./Pictures";

function Result({
  hit,
  stems,
  onOpen,
  onSimilar,
}: {
  hit: Hit;
  stems: ReadonlySet<string>;
  onOpen: () => void;
  onSimilar: () => void;
}): JSX.Element {
  const percent = Math.round(100 * hit.score);
  return (
    <li class="result" data-testid="result-item" data-score={hit.score.toFixed(3)}>
      <button type="button" class="result-open" data-testid="open-result" onClick={onOpen}>
        <span class="result-text">{highlight(hit.text, stems).map(({ text, marked }) => (marked ? <mark>{text}</mark> : text))}</span>
      </button>
      <div class="result-foot">
        <progress class="score" max={100} value={percent} aria-label={`Match: ${percent} of 100`} />
        <span class="score-text" aria-hidden="true">
          {percent}
        </span>
        <span class="result-doc">{hit.doc.name}</span>
        <button type="button" class="button quiet" data-testid="similar" onClick={onSimilar}>
          Find similar
        </button>
      </div>
    </li>
  );
}

/** The passages found, best first. */
export function Results({
  finder,
  onOpen,
  onPicture,
}: {
  finder: Finder;
  onOpen: (hit: Hit) => void;
  onPicture: (doc: Doc) => void;
}): JSX.Element {
  const { hits, pictures, searching, like, docs, work } = finder.state;
  if (hits === null)
    return (
      <p class="hint waiting" data-testid="waiting">
        {searching ? "Searching as soon as the model is ready…" : ""}
      </p>
    );
  if (hits.length === 0 && pictures.length === 0) {
    const why =
      docs.length === 0
        ? finder.readsPictures
          ? "There is nothing to search yet: add pictures, a text or a file."
          : "There are no documents yet: add a text or a file."
        : work === null
          ? "Nothing was found."
          : "Nothing yet: your documents are still being read.";
    return (
      <p class="hint waiting" data-testid="nothing">
        {why}
      </p>
    );
  }
  return (
    <div
      class={searching ? "results is-old" : "results"}
      data-testid="results"
      role="region"
      aria-label="Results"
      aria-busy={searching}
      data-query={finder.state.query}
    >
      {pictures.length > 0 && (
        <Thumbs
          key={finder.state.query}
          pictures={pictures}
          testId="pictures-found"
          label={like === null ? "Pictures found" : "Similar pictures"}
          found
          onOpen={onPicture}
        />
      )}
      {hits.length > 0 && (
        <ol class="results" aria-label={like === null ? "Passages found" : "Similar passages"}>
          {hits.map((hit) => (
            <Result
              key={`${hit.doc.id}:${hit.index}`}
              hit={hit}
              stems={finder.marked}
              onOpen={() => onOpen(hit)}
              onSimilar={() => finder.similar(hit)}
            />
          ))}
        </ol>
      )}
    </div>
  );
}

/** The passage that the results are like. */
export function LikeLine({ text, onClose }: { text: string; onClose: () => void }): JSX.Element {
  return (
    <div class="like" data-testid="like">
      <p>
        <span>Similar to</span> “{text}”
      </p>
      <IconButton icon="close" label="Back to searching" testId="close-like" onClick={onClose} />
    </div>
  );
}
