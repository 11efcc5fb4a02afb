/** What was found, and what is looked for. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Slider } from "tinyweb-shell";
import { summary, type Viewer } from "../app/viewer";
import { colourOf } from "./draw";

const SHARES = { min: 0.05, max: 0.95, step: 0.05 };
/** Labels from which on there is a field to search them. */
const MANY = 20;

const percent = (share: number): string => `${Math.round(share * 100)} %`;

function Classes({ viewer }: { viewer: Viewer }): JSX.Element {
  const { labels } = viewer.facts;
  const [wanted, setWanted] = useState("");
  const hidden = new Set(viewer.shell.settings.hidden);
  const shown = labels.filter((label) => !hidden.has(label)).length;
  const needle = wanted.trim().toLowerCase();
  const toggle = (label: string): void => {
    if (!hidden.delete(label)) hidden.add(label);
    viewer.hide([...hidden]);
  };
  return (
    <details class="classes" data-testid="classes">
      <summary>
        <span>Look for</span>
        <span class="classes-count">{shown === labels.length ? `all ${shown}` : `${shown} of ${labels.length}`}</span>
      </summary>
      <div class="classes-tools">
        {labels.length > MANY && (
          <input
            type="search"
            class="input"
            aria-label="Search the classes"
            placeholder="Search"
            data-testid="search-classes"
            value={wanted}
            onInput={(event) => setWanted(event.currentTarget.value)}
          />
        )}
        <button type="button" class="button quiet" data-testid="all-classes" onClick={() => viewer.hide([])}>
          All
        </button>
        <button type="button" class="button quiet" data-testid="no-classes" onClick={() => viewer.hide(labels)}>
          None
        </button>
      </div>
      <ul class="chips" aria-label="Classes">
        {labels.map((label, index) =>
          needle !== "" && !label.toLowerCase().includes(needle) ? null : (
            <li key={index}>
              <button type="button" class="pill chip" aria-pressed={!hidden.has(label)} onClick={() => toggle(label)}>
                <span class="dot" style={{ background: colourOf(index) }} />
                {label}
              </button>
            </li>
          ),
        )}
      </ul>
    </details>
  );
}

export function Panel({ viewer }: { viewer: Viewer }): JSX.Element {
  const { found, source } = viewer.state;
  const { labels } = viewer.facts;
  return (
    <section class="card" aria-label="What is looked for">
      {source !== null && (
        <div class="result">
          <p data-testid="result">{found === null ? "Looking…" : summary(found)}</p>
          {found !== null && found.length > 0 && (
            <ul class="found" aria-label="Found objects">
              {found.slice(0, 50).map(({ label, index, score }, i) => (
                <li key={i}>
                  <span class="dot" style={{ background: colourOf(index) }} />
                  {label} <span class="score">{percent(score)}</span>
                </li>
              ))}
            </ul>
          )}
        </div>
      )}
      <output hidden data-testid="boxes">
        {found === null ? "" : JSON.stringify(found.map(({ label, score, box }) => ({ label, score, box })))}
      </output>
      <Slider
        id="confidence"
        label="Confidence"
        hint="Boxes that are less sure are left out."
        value={viewer.confidence}
        shown={percent(viewer.confidence)}
        range={SHARES}
        onChange={(confidence) => viewer.set({ confidence })}
      />
      <Slider
        id="iou"
        label="Overlap"
        hint="Of two boxes of one kind that overlap more, the surer one stays."
        value={viewer.iou}
        shown={percent(viewer.iou)}
        range={SHARES}
        onChange={(iou) => viewer.set({ iou })}
      />
      {labels.length > 1 && <Classes viewer={viewer} />}
    </section>
  );
}
