import type { JSX } from "preact";
import { IconButton } from "tinyweb-shell";
import type { Finder } from "../app/finder";
import type { Hit } from "../app/rank";
import { highlight } from "../text/words";

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
export function Results({ finder, onOpen }: { finder: Finder; onOpen: (hit: Hit) => void }): JSX.Element {
  const { hits, searching, like, docs, work } = finder.state;
  if (hits === null)
    return (
      <p class="hint waiting" data-testid="waiting">
        {searching ? "Searching as soon as the model is ready…" : ""}
      </p>
    );
  if (hits.length === 0) {
    const why =
      docs.length === 0
        ? "There are no documents yet: add a text or a file."
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
    <ol
      class={searching ? "results is-old" : "results"}
      data-testid="results"
      aria-label={like === null ? "Passages found" : "Similar passages"}
      aria-busy={searching}
      data-query={finder.state.query}
    >
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
