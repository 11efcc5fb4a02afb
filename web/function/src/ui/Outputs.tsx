/** One card for each output, shown in one of several ways. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { FilePicker, Icon, useCopy } from "tinyweb-shell";
import { boxesOf } from "../data/boxes";
import { numbersText } from "../data/json";
import { numberText, rangeOf } from "../data/arrays";
import { writeNpy } from "../data/npy";
import { hueOf, layoutOf, maskOf, outputPixels, type Layout } from "../data/picture";
import type { Runner } from "../app/runner";
import { envelope, exactly, rowsOf, topClasses, VIEW_LABELS, viewsFor, type Shown, type View } from "../app/views";
import { PortHead } from "./Inputs";
import { Select } from "./Select";

const TOP = 5;
const ROWS = 50;
const COLUMNS = 32;
const FIRST = 256;
/** Elements that are copied as text, at most. */
const COPIED = 1_000_000;

export function OutputCard({ runner, shown, index }: { runner: Runner; shown: Shown; index: number }): JSX.Element {
  const { spec, shape } = shown;
  const id = `output-${index}`;
  const { labels, seen } = runner.state;
  const views = viewsFor(spec, shape, runner.looks, labels.length);
  const chosen = runner.state.views[spec.name];
  const view = chosen !== undefined && views.includes(chosen) ? chosen : (views[0] as View);
  return (
    <section class="card port output" data-testid="output" data-view={view} aria-labelledby={`${id}-name`}>
      <PortHead id={`${id}-name`} spec={{ ...spec, shape }} named={runner.graph.shapes[spec.name]} />
      {views.length > 1 && (
        <Select
          id={`${id}-view`}
          label="Show as"
          choices={views.map((one) => [one, VIEW_LABELS[one]] as const)}
          value={view}
          onChange={(one) => runner.view(spec.name, one)}
        />
      )}
      {view === "boxes" && <Boxes shown={shown} seen={seen} labels={labels} />}
      {view === "classes" && <Classes runner={runner} shown={shown} />}
      {view === "picture" && <OutputPicture shown={shown} />}
      {view === "mask" && <MaskView shown={shown} seen={seen} labels={labels} />}
      {view === "plot" && <Plot shown={shown} />}
      {view === "table" && <TableView shown={shown} labels={labels} />}
      {view === "numbers" && <Numbers shown={shown} />}
      <Save shown={shown} />
    </section>
  );
}

function Save({ shown }: { shown: Shown }): JSX.Element {
  const [copied, copy] = useCopy();
  const { spec, shape, values, data, texts } = shown;
  const save = (): void => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([writeNpy(data, spec.dtype, shape)]));
    link.download = `${spec.name.replaceAll(/[^\w.-]/gu, "_")}.npy`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  return (
    <div class="row">
      {texts === undefined && (
        <button type="button" class="button" data-testid="save" onClick={save}>
          <Icon name="download" />
          .npy
        </button>
      )}
      {values.length <= COPIED && (
        <button type="button" class="button" data-testid="copy-json" onClick={() => copy(numbersText(texts ?? exactly(shown), shape))}>
          <Icon name={copied ? "check" : "copy"} />
          <span aria-live="polite">{copied ? "Copied" : "JSON"}</span>
        </button>
      )}
    </div>
  );
}

function Classes({ runner, shown }: { runner: Runner; shown: Shown }): JSX.Element {
  const { labels } = runner.state;
  return (
    <>
      <ol class="classes" data-testid="classes">
        {topClasses(shown.values, TOP).map(({ index, value, share }) => (
          <li key={index}>
            <span class="class-name">{labels[index] ?? `Class ${index}`}</span>
            <span class="class-share">{`${(100 * share).toFixed(1)} %`}</span>
            <meter min={0} max={1} value={share} aria-label={`Share of ${labels[index] ?? `class ${index}`}`} />
            <small class="class-value">{`index ${index}, ${numberText(value)}`}</small>
          </li>
        ))}
      </ol>
      <div class="row">
        <FilePicker testId="labels" icon="file" accept=".txt,.json" onFiles={([file]) => file && void runner.labelsFile(file)}>
          {labels.length > 0 ? `${labels.length} labels` : "Choose labels"}
        </FilePicker>
      </div>
    </>
  );
}

/** A canvas of an image's own pixels. */
function Pixels({ pixels, label }: { pixels: ImageData; label: string }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const element = canvas.current;
    if (element === null) return;
    [element.width, element.height] = [pixels.width, pixels.height];
    element.getContext("2d")?.putImageData(pixels, 0, 0);
  }, [pixels]);
  return <canvas ref={canvas} role="img" aria-label={label} class={pixels.width < 96 ? "coarse" : ""} />;
}

function OutputPicture({ shown }: { shown: Shown }): JSX.Element {
  const layout = layoutOf(shown.shape) as Layout;
  return (
    <div class="preview" data-testid="picture">
      <Pixels pixels={outputPixels(shown.values, layout, shown.range)} label={`${shown.spec.name} as a picture`} />
    </div>
  );
}

const BOXED = 20;

function Boxes({ shown, seen, labels }: { shown: Shown; seen: ImageData | null; labels: readonly string[] }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const boxes = seen === null ? [] : boxesOf(shown.values, shown.shape, labels.length, seen);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (canvas.current === null || !context || seen === null) return;
    [canvas.current.width, canvas.current.height] = [seen.width, seen.height];
    context.putImageData(seen, 0, 0);
    context.lineWidth = Math.max(2, seen.width / 160);
    for (const { index, left, top, width, height } of boxes) {
      context.strokeStyle = `hsl(${hueOf(index)} 70% 50%)`;
      context.strokeRect(left * seen.width, top * seen.height, width * seen.width, height * seen.height);
    }
  }, [shown, seen, labels]);
  const percent = (share: number): string => `${(100 * share).toFixed(0)} %`;
  return (
    <>
      <div class="preview" data-testid="boxes">
        <canvas ref={canvas} role="img" aria-label={`${boxes.length} boxes over the picture`} />
      </div>
      {boxes.length === 0 ? (
        <p class="hint">No box with a score of 25 % or more.</p>
      ) : (
        <ul class="legend">
          {boxes.slice(0, BOXED).map(({ index, score, left, top, width, height }) => (
            <li key={`${index} ${left} ${top}`}>
              <Swatch hue={hueOf(index)} />
              {`${labels[index]}, ${percent(score)}, from ${percent(left)}, ${percent(top)}: ${percent(width)} × ${percent(height)}`}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

const LEGEND = 6;

function MaskView({ shown, seen, labels }: { shown: Shown; seen: ImageData | null; labels: readonly string[] }): JSX.Element {
  const mask = maskOf(shown.values, shown.shape, shown.range, !/^f/u.test(shown.spec.dtype));
  if (mask === null) return <p class="hint">This is no mask.</p>;
  const { width, height, classes } = mask;
  const pixels = new ImageData(width, height);
  const areas = new Map<number, number>();
  const colours = new Map<number, [number, number, number]>();
  for (let i = 0; i < classes.length; i++) {
    const kind = classes[i] as number;
    areas.set(kind, (areas.get(kind) ?? 0) + 1);
    const x = i % width;
    const y = Math.floor(i / width);
    const at = seen === null ? -1 : 4 * (Math.floor((y * seen.height) / height) * seen.width + Math.floor((x * seen.width) / width));
    let colour = colours.get(kind);
    if (colour === undefined) {
      colour = rgbOf(hueOf(kind));
      colours.set(kind, colour);
    }
    for (let channel = 0; channel < 3; channel++) {
      const below = seen === null ? 32 : (seen.data[at + channel] as number);
      pixels.data[4 * i + channel] = kind === 0 ? below : 0.45 * below + 0.55 * (colour[channel] as number);
    }
    pixels.data[4 * i + 3] = 255;
  }
  const largest = [...areas].filter(([kind]) => kind !== 0).sort((a, b) => b[1] - a[1]);
  return (
    <>
      <div class="preview" data-testid="mask">
        <Pixels pixels={pixels} label={`${shown.spec.name} over the picture`} />
      </div>
      <ul class="legend">
        {largest.slice(0, LEGEND).map(([kind, area]) => (
          <li key={kind}>
            <Swatch hue={hueOf(kind)} />
            {labels[kind] ?? `Class ${kind}`}, {((100 * area) / classes.length).toFixed(1)} %
          </li>
        ))}
      </ul>
    </>
  );
}

function Swatch({ hue }: { hue: number }): JSX.Element {
  return (
    <svg class="swatch" viewBox="0 0 12 12" aria-hidden="true">
      <rect width="12" height="12" rx="3" fill={`hsl(${hue} 70% 50%)`} />
    </svg>
  );
}

/** hsl(hue, 70 %, 50 %), as bytes. */
function rgbOf(hue: number): [number, number, number] {
  const level = (n: number): number => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (0.5 - 0.35 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [level(0), level(8), level(4)];
}

const [WIDE, HIGH] = [600, 200];
const LINES = 8;

function Plot({ shown }: { shown: Shown }): JSX.Element {
  const { rows, columns } = rowsOf(shown.shape);
  const drawn = Math.min(rows, LINES);
  const part = rows === drawn ? shown.range : rangeOf(shown.values.subarray(0, drawn * columns));
  const { least, largest } = part;
  const y = (value: number): number => HIGH - 6 - ((HIGH - 12) * (value - least)) / (largest - least || 1);
  const lines = Array.from({ length: drawn }, (_, row) => {
    const pieces = envelope(shown.values, row * columns, columns, WIDE / 2);
    const points = pieces.flatMap(([at, low, high]) => {
      const x = columns > 1 ? (WIDE * at) / (columns - 1) : 0;
      return low === high
        ? [[x, y(low)]]
        : [
            [x, y(low)],
            [x, y(high)],
          ];
    });
    return points.map((point) => point.map((value) => (value as number).toFixed(1)).join()).join(" ");
  });
  return (
    <figure class="plot" data-testid="plot">
      <svg
        viewBox={`0 0 ${WIDE} ${HIGH}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${shown.spec.name}: from ${numberText(least)} to ${numberText(largest)}`}
      >
        {lines.map((points, row) => (
          <polyline key={row} points={points} class={row === 0 ? "line" : "line more"} />
        ))}
      </svg>
      <figcaption class="hint">
        {`${numberText(least)} … ${numberText(largest)}, ${columns} along the way`}
        {rows > 1 && `, ${drawn === rows ? `${rows} lines` : `the first ${drawn} of ${rows} lines`}`}
      </figcaption>
    </figure>
  );
}

function TableView({ shown, labels }: { shown: Shown; labels: readonly string[] }): JSX.Element {
  const { rows, columns } = rowsOf(shown.shape);
  const values = exactly(shown);
  const [many, wide] = [Math.min(rows, ROWS), Math.min(columns, COLUMNS)];
  return (
    <>
      <div class="table-holder" tabIndex={0} role="region" aria-label={`${shown.spec.name} as a table`} data-testid="table">
        <table>
          <thead>
            <tr>
              <td />
              {Array.from({ length: wide }, (_, column) => (
                <th key={column} scope="col">
                  {labels.length === columns ? labels[column] : column}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {Array.from({ length: many }, (_, row) => (
              <tr key={row}>
                <th scope="row">{row}</th>
                {Array.from({ length: wide }, (_, column) => (
                  <td key={column}>{numberText(values[row * columns + column] as number | bigint)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {(many < rows || wide < columns) && <p class="hint">{`The first ${many} of ${rows} rows, ${wide} of ${columns} columns.`}</p>}
    </>
  );
}

function Numbers({ shown }: { shown: Shown }): JSX.Element {
  const { values, range, texts } = shown;
  const exact = exactly(shown);
  const rows: [string, string][] =
    values.length > 1 && texts === undefined
      ? [
          ["Least", numberText(range.least)],
          ["Largest", numberText(range.largest)],
          ["Mean", numberText(range.mean)],
          ...(range.odd > 0 ? [["NaN or ∞", String(range.odd)] as [string, string]] : []),
        ]
      : [];
  return (
    <>
      {rows.length > 0 && (
        <dl class="figures">
          {rows.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      )}
      <p class="mono numbers" data-testid="numbers" tabIndex={0}>
        {Array.from({ length: Math.min(FIRST, values.length) }, (_, i) => texts?.[i] ?? numberText(exact[i] as number | bigint)).join(", ")}
        {values.length > FIRST && ` … (${values.length} in all)`}
      </p>
    </>
  );
}
