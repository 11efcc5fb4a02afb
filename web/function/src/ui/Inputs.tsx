/** One card for each input: what it takes, where it comes from, and the settings of that. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Field, FilePicker, Icon, Slider } from "tinyweb-shell";
import { count, dtypeName, isFloat, shapeText } from "../data/arrays";
import { layoutOf, NORMALISATIONS, pixelsOf, type Fit, type Layout, type Normalisation } from "../data/picture";
import type { Spread } from "../data/random";
import { KIND_LABELS, returning, sized, type Feed } from "../app/feeds";
import type { Runner } from "../app/runner";
import { choosable, type ArrayInfo, type Range } from "../model-api";
import { NumberField, Select } from "./Select";

interface PartProps {
  runner: Runner;
  spec: ArrayInfo;
  feed: Feed;
  /** Begins the ids of all fields. */
  id: string;
}

export function InputCard({ runner, spec, index }: { runner: Runner; spec: ArrayInfo; index: number }): JSX.Element {
  const feed = runner.feedOf(spec);
  const id = `input-${index}`;
  const kinds = runner.kindsOf(spec).map((kind) => [kind, spec.texts === undefined ? KIND_LABELS[kind] : "Texts (JSON)"] as const);
  const named = runner.graph.shapes[spec.name];
  const part = { runner, spec, feed, id };
  return (
    <section class="card port" data-testid="input" aria-labelledby={`${id}-name`}>
      <PortHead id={`${id}-name`} spec={spec} named={named} />
      <Select
        id={`${id}-kind`}
        label="Comes from"
        choices={kinds}
        value={feed.kind}
        onChange={(kind) => (kind === "camera" ? void runner.camera(spec) : runner.feed(spec.name, { kind, source: null }))}
      />
      {(feed.kind === "picture" || feed.kind === "camera") && <PictureFeed {...part} />}
      {feed.kind === "sound" && <SoundFeed {...part} />}
      {feed.kind === "text" && <TextFeed {...part} />}
      {feed.kind === "json" && <JsonFeed {...part} />}
      {feed.kind === "npy" && <NpyFeed {...part} />}
      {feed.kind === "random" && <RandomFeed {...part} />}
      {feed.kind === "output" && <OutputFeed {...part} />}
    </section>
  );
}

export function PortHead({
  id,
  spec,
  named,
}: {
  id: string;
  spec: ArrayInfo;
  named: readonly (number | string | null)[] | undefined;
}): JSX.Element {
  // names as they are; a formula, or what an exporter numbered, says less than its place
  const sizes = named?.map((size) => (typeof size === "string" && !/^[\w-]{0,23}[a-z_-]$/iu.test(size) ? "?" : (size ?? "?")));
  const symbolic = sizes?.some((size) => typeof size === "string" && size !== "?") === true ? ` (${sizes.join(" × ")})` : "";
  return (
    <div class="port-head">
      <h3 id={id}>{spec.name}</h3>
      <p class="hint">
        {dtypeName(spec.dtype)}, {shapeText(spec.shape)}
        {symbolic}
      </p>
    </div>
  );
}

const FITS: readonly (readonly [Fit, string])[] = [
  ["stretch", "stretched"],
  ["cover", "cut to fill"],
  ["contain", "whole, with borders"],
];

function PictureFeed({ runner, spec, feed, id }: PartProps): JSX.Element {
  const layout = layoutOf(spec.shape) as Layout;
  const { picture } = feed;
  const set = (change: Partial<Feed["picture"]>): void => runner.feed(spec.name, { picture: { ...picture, ...change } });
  const numbers = (text: string): number[] =>
    text
      .split(/[\s,;]+/u)
      .filter((part) => part !== "")
      .map(Number);
  const choices = [
    ...Object.entries(NORMALISATIONS).map(([key, { label }]) => [key as Normalisation, label] as const),
    ["own" as Normalisation, "mean and deviation"] as const,
  ];
  return (
    <>
      {(feed.kind === "picture" || feed.source !== null) && <Preview feed={feed} layout={layout} />}
      <div class="row">
        {feed.kind === "camera" ? (
          <button
            type="button"
            class="button"
            data-testid="camera-stop"
            onClick={() => runner.stopCamera(spec)}
            disabled={feed.source === null}
          >
            <Icon name="stop" />
            Stop the camera
          </button>
        ) : (
          <FilePicker testId="choose" icon="image" accept="image/*" onFiles={([file]) => file && void runner.file(spec, file)}>
            Choose a picture
          </FilePicker>
        )}
      </div>
      {feed.kind === "picture" && feed.source === null && <p class="hint">Until you choose one, a drawn picture goes in.</p>}
      <div class="pair">
        <Select
          id={`${id}-numbers`}
          label="Levels become"
          choices={choices}
          value={picture.normalisation}
          onChange={(normalisation) => set({ normalisation })}
        />
        <Select
          id={`${id}-fit`}
          label={`To ${layout.width} × ${layout.height}`}
          choices={FITS}
          value={picture.fit}
          onChange={(fit) => set({ fit })}
        />
        {layout.channels === 3 && (
          <Select
            id={`${id}-order`}
            label="Channels"
            choices={[
              ["rgb", "red, green, blue"],
              ["bgr", "blue, green, red"],
            ]}
            value={picture.reversed ? "bgr" : "rgb"}
            onChange={(order) => set({ reversed: order === "bgr" })}
          />
        )}
      </div>
      {picture.normalisation === "own" && (
        <div class="pair">
          {(["mean", "deviation"] as const).map((what) => (
            <Field key={what} id={`${id}-${what}`} label={what === "mean" ? "Mean (of 0 … 1)" : "Deviation"}>
              <input
                id={`${id}-${what}`}
                data-testid={`${id}-${what}`}
                type="text"
                inputMode="decimal"
                value={picture[what].join(", ")}
                onChange={(event) => {
                  const given = numbers(event.currentTarget.value);
                  if (given.length > 0 && given.every(Number.isFinite)) set({ [what]: given });
                  else event.currentTarget.value = picture[what].join(", ");
                }}
              />
            </Field>
          ))}
        </div>
      )}
      <p class="hint">
        {layout.first ? "Channels first" : "Channels last"}, {layout.channels === 1 ? "grey" : `${layout.channels} channels`}.
      </p>
    </>
  );
}

/** What of the picture goes in, at the size it goes in. */
function Preview({ feed, layout }: { feed: Feed; layout: Layout }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const { source } = feed;
  useEffect(() => {
    const holder = place.current;
    if (holder === null) return;
    if (source?.element instanceof HTMLVideoElement) {
      holder.replaceChildren(source.element);
      return;
    }
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [layout.width, layout.height];
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", source?.name ?? "A drawn picture");
    const { element, ...size } = sized(source);
    canvas.getContext("2d")?.putImageData(pixelsOf(element, size, layout, feed.picture.fit), 0, 0);
    holder.replaceChildren(canvas);
  }, [source, feed.picture.fit, layout.width, layout.height]);
  return <div ref={place} class="preview" data-testid="preview" />;
}

function SoundFeed({ runner, spec, feed, id }: PartProps): JSX.Element {
  const length = count(spec.shape);
  const { sound, rate } = feed;
  const seconds = (samples: number): string => `${(samples / rate).toFixed(2)} s`;
  return (
    <>
      <div class="row">
        <FilePicker
          testId="choose"
          icon="file"
          accept="audio/*,video/*,.wav,.mp3,.flac,.ogg,.m4a"
          onFiles={([file]) => file && void runner.file(spec, file)}
        >
          Choose a sound
        </FilePicker>
      </div>
      <p class="hint" data-testid="sound">
        {sound === null
          ? "Until you choose one, a tone of 440 Hz goes in."
          : `${feed.file}: ${seconds(sound.samples.length)}, one channel, ${sound.rate} Hz.`}
      </p>
      <NumberField
        id={`${id}-rate`}
        label="Samples in a second"
        hint={`${length} samples go in: ${seconds(length)}. A change counts for the next file.`}
        value={rate}
        min={3000}
        max={384_000}
        onChange={(given) => runner.feed(spec.name, { rate: given, sound: null, from: 0 })}
      />
      <NumberField
        id={`${id}-step`}
        label="Samples further on at each run"
        value={feed.step}
        onChange={(step) => runner.feed(spec.name, { step })}
      />
      {sound !== null && sound.samples.length > length && (
        <Slider
          id={`${id}-from`}
          label="From"
          value={feed.from}
          shown={seconds(feed.from)}
          range={{ min: 0, max: sound.samples.length - length, step: 1 }}
          onChange={(from) => runner.feed(spec.name, { from })}
        />
      )}
    </>
  );
}

function TextFeed({ runner, spec, feed, id }: PartProps): JSX.Element {
  return (
    <>
      <Field id={`${id}-text`} label="Text" hint={`${count(spec.shape)} token ids go in; a longer text is cut, a shorter one filled.`}>
        <textarea
          id={`${id}-text`}
          data-testid={`${id}-text`}
          rows={3}
          value={feed.text}
          aria-describedby={`${id}-text-hint`}
          onInput={(event) => runner.feed(spec.name, { text: event.currentTarget.value })}
        />
      </Field>
      <div class="row">
        <FilePicker testId="tokenizer" icon="file" accept=".json" onFiles={([file]) => file && void runner.tokenizer(file)}>
          {runner.reads ? "Another tokenizer.json" : "Choose tokenizer.json"}
        </FilePicker>
      </div>
    </>
  );
}

/** Words that a hint lists, at most. */
const WORDS = 24;

function JsonFeed({ runner, spec, feed, id }: PartProps): JSX.Element {
  const length = count(spec.shape);
  const what = spec.texts === undefined ? "Number" : "Text";
  const many = `${length} of them, as a list or nested lists; one alone fills all.`;
  const one = spec.texts === undefined ? "true and false count as 1 and 0." : "";
  const known =
    spec.texts === undefined
      ? ""
      : ` The model tells apart: ${spec.texts.slice(0, WORDS).join(", ")}${spec.texts.length > WORDS ? ", …" : "."}`;
  return (
    <>
      <Field id={`${id}-json`} label={length === 1 ? what : `${what}s`} hint={`${length === 1 ? one : many}${known}`}>
        <textarea
          id={`${id}-json`}
          data-testid={`${id}-json`}
          class="mono"
          rows={length === 1 ? 1 : 4}
          spellcheck={false}
          value={feed.json}
          aria-describedby={`${id}-json-hint`}
          onInput={(event) => runner.feed(spec.name, { json: event.currentTarget.value })}
        />
      </Field>
      <div class="row">
        <FilePicker
          testId="choose-json"
          icon="file"
          accept=".json,.txt"
          onFiles={([file]) => file && void file.text().then((json) => runner.feed(spec.name, { json }))}
        >
          Choose a file
        </FilePicker>
      </div>
    </>
  );
}

function NpyFeed({ runner, spec, feed }: PartProps): JSX.Element {
  return (
    <>
      <div class="row">
        <FilePicker testId="choose" icon="file" accept=".npy" onFiles={([file]) => file && void runner.file(spec, file)}>
          Choose a .npy file
        </FilePicker>
      </div>
      {feed.numbers !== null && (
        <p class="hint">
          {feed.file}: {shapeText(feed.numbers.shape)}.
        </p>
      )}
    </>
  );
}

/** What came out goes in again: states of recurrent networks, samples of iterations. */
function OutputFeed({ runner, spec, feed, id }: PartProps): JSX.Element {
  const names = returning(spec, runner.current?.outputs ?? []);
  const begun = runner.state.outputs !== null;
  return (
    <>
      <Select
        id={`${id}-output`}
        label="Output"
        choices={names.map((name) => [name, name] as const)}
        value={names.includes(feed.output) ? feed.output : (names[0] ?? "")}
        onChange={(output) => runner.feed(spec.name, { output })}
      />
      <div class="row">
        <button type="button" class="button" data-testid={`${id}-forget`} disabled={!begun} onClick={() => runner.forget()}>
          <Icon name="again" />
          Begin with zeros again
        </button>
      </div>
      <p class="hint">{begun ? "What the last run gave goes into the next." : "Zeros go into the first run."}</p>
    </>
  );
}

const SPREADS: readonly (readonly [Spread, string])[] = [
  ["uniform", "uniform, 0 … 1"],
  ["normal", "normal"],
  ["integers", "integers"],
  ["zeros", "zeros"],
  ["ones", "ones"],
];

function RandomFeed({ runner, spec, feed, id }: PartProps): JSX.Element {
  const spreads = isFloat(spec.dtype) ? SPREADS : SPREADS.filter(([spread]) => spread !== "uniform" && spread !== "normal");
  const drawn = feed.spread !== "zeros" && feed.spread !== "ones";
  return (
    <div class="pair">
      <Select
        id={`${id}-spread`}
        label="They are"
        choices={spreads}
        value={feed.spread}
        onChange={(spread) => runner.feed(spec.name, { spread })}
      />
      {feed.spread === "integers" && (
        <NumberField id={`${id}-most`} label="Below" min={1} value={feed.most} onChange={(most) => runner.feed(spec.name, { most })} />
      )}
      {drawn && <NumberField id={`${id}-seed`} label="Seed" value={feed.seed} onChange={(seed) => runner.feed(spec.name, { seed })} />}
    </div>
  );
}

/** Which function is called, where there are several, and the sizes that vary. */
export function SizesCard({ runner }: { runner: Runner }): JSX.Element | null {
  const { functions, current, graph, variables } = runner;
  if (current === undefined) return null;
  const varying = choosable(current.inputs, variables);
  if (functions.length < 2 && varying.length === 0) return null;
  const text = (name: string): string => {
    const sizes = Object.entries(graph.sizes[name] ?? {});
    return sizes.length === 0 ? name : sizes.map(([size, value]) => `${size} ${value}`).join(", ");
  };
  return (
    <div class="pair">
      {functions.length > 1 && (
        <Select
          id="function"
          label="Function"
          choices={functions.map(({ name }) => [name, text(name)] as const)}
          value={current.name}
          onChange={(name) => runner.choose(name)}
        />
      )}
      {varying.map(({ name, label, times }, index) => {
        const { min, max } = variables[name] as Range;
        return (
          <NumberField
            key={name}
            id={`size-${index}`}
            label={`Size ${label}`}
            hint={`${times * min} … ${times * max}${times === 1 ? "" : `, in steps of ${times}`}`}
            min={times * min}
            max={times * max}
            step={times}
            value={times * (runner.state.sizes[name] ?? min)}
            onChange={(value) => runner.size(name, value / times)}
          />
        );
      })}
    </div>
  );
}
