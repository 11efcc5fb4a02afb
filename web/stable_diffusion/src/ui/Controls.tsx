/** What the next picture is made with, beside the prompt. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Field, FilePicker, IconButton, Slider } from "tinyweb-shell";
import { MAX_GUIDANCE, MAX_PROMPT, MAX_STEPS } from "../app/draft";
import type { Studio } from "../app/studio";

const SAMPLERS: Record<string, string> = {
  ddim: "DDIM",
  euler: "Euler",
  "euler-ancestral": "Euler, ancestral",
  "dpm++2m": "DPM++ 2M",
  lcm: "LCM",
};

export const samplerName = (name: string): string => SAMPLERS[name] ?? name;

const GUIDANCE = { min: 1, max: MAX_GUIDANCE, step: 0.5 };
const STRENGTH = { min: 0.05, max: 1, step: 0.05 };

function StartPicture({ studio }: { studio: Studio }): JSX.Element {
  const { start } = studio.state;
  const strength = studio.recipe.strength ?? 0.75;
  const section = useRef<HTMLElement>(null);
  // On a phone it lies far below the button, or the drop, that it comes from.
  useEffect(() => {
    if (start !== null) section.current?.scrollIntoView({ block: "nearest" });
  }, [start]);
  return (
    <section class="start" ref={section}>
      {start === null ? (
        <>
          <FilePicker
            testId="choose-file"
            icon="image"
            accept="image/*"
            onFiles={([file]) => file !== undefined && void studio.take(file, file.name)}
          >
            Begin from a picture
          </FilePicker>
          <small>Or drop or paste one. A picture that was made here brings its settings back.</small>
        </>
      ) : (
        <>
          <div class="start-picture">
            <img src={start.url} alt="What to begin from" data-testid="start-picture" />
            <p>{start.name}</p>
            <IconButton icon="close" label="Begin without a picture" testId="drop-start" onClick={() => studio.dropStart()} />
          </div>
          <Slider
            id="strength"
            label="Change"
            hint="Little keeps the picture, much follows the prompt."
            value={strength}
            shown={`${Math.round(100 * strength)} %`}
            range={STRENGTH}
            onChange={(value) => studio.edit({ strength: value })}
          />
        </>
      )}
    </section>
  );
}

/** What is no seed, an empty field too, stands for any: it is drawn with the next picture, and shown then. */
function SeedField({ studio }: { studio: Studio }): JSX.Element {
  const { seed, seedLocked } = studio.state.draft;
  /** What is being typed while it is no seed. */
  const [odd, setOdd] = useState<{ text: string; seed: number } | null>(null);
  const typed = odd?.seed === seed ? odd.text : null; // another seed was drawn meanwhile
  const wrong = typed !== null && typed !== "";
  const hint = seedLocked ? "The same settings paint the same picture." : "Another one for every picture.";
  return (
    <div class="field">
      <label for="seed">Seed</label>
      <div class="seed">
        <input
          id="seed"
          type="text"
          inputMode="numeric"
          autocomplete="off"
          data-testid="seed"
          value={typed ?? seed}
          aria-invalid={wrong}
          aria-describedby="seed-hint"
          onInput={({ currentTarget: { value } }) => {
            const given = /^\d+$/u.test(value.trim()) ? Number(value) : NaN;
            // A seed that is typed in is meant to be used.
            if (Number.isSafeInteger(given)) {
              setOdd(null);
              studio.edit({ seed: given, seedLocked: true });
            } else {
              setOdd({ text: value, seed });
              studio.edit({ seedLocked: false });
            }
          }}
          onBlur={() => setOdd((now) => (now?.text === "" ? null : now))}
        />
        <IconButton icon="shuffle" label="Another seed" testId="dice" onClick={() => studio.rollSeed()} />
        <IconButton
          icon="lock"
          label="Keep this seed"
          testId="lock-seed"
          class="lock"
          pressed={seedLocked}
          onClick={() => {
            setOdd(null);
            studio.edit({ seedLocked: !seedLocked });
          }}
        />
      </div>
      <small id="seed-hint">{wrong ? `A seed is a whole number from 0 to ${Number.MAX_SAFE_INTEGER}; another one is drawn.` : hint}</small>
    </div>
  );
}

export function Controls({ studio }: { studio: Studio }): JSX.Element {
  const { offer, recipe, state } = studio;
  const { draft } = state;
  const sizes = offer.sizes.length > 0 ? offer.sizes : [{ width: recipe.width, height: recipe.height }];
  const schedulers = offer.schedulers.length > 0 ? offer.schedulers : [recipe.scheduler];
  return (
    <section class="card controls" aria-labelledby="controls-title">
      <h2 id="controls-title" class="sr-only">
        How it is painted
      </h2>
      {offer.guidance && (
        <Field id="negative" label="Not in the picture">
          <textarea
            id="negative"
            data-testid="negative"
            rows={1}
            maxLength={MAX_PROMPT}
            value={draft.negativePrompt}
            placeholder="Optional"
            onInput={(event) => studio.edit({ negativePrompt: event.currentTarget.value })}
          />
        </Field>
      )}
      <Slider
        id="steps"
        label="Steps"
        hint="More take longer and are finer."
        value={recipe.steps}
        shown={`${recipe.steps}`}
        range={{ min: 1, max: Math.max(50, Math.min(MAX_STEPS, recipe.steps)), step: 1 }}
        onChange={(value) => studio.edit({ steps: value })}
      />
      {offer.guidance && (
        <Slider
          id="guidance"
          label="Guidance"
          hint="How closely the prompt is followed."
          value={recipe.guidance}
          shown={recipe.guidance.toFixed(1)}
          range={GUIDANCE}
          onChange={(value) => studio.edit({ guidance: value })}
        />
      )}
      <SeedField studio={studio} />
      <div class="pair">
        <Field id="size" label="Size">
          <select
            id="size"
            data-testid="size"
            value={`${recipe.width}x${recipe.height}`}
            onChange={(event) => {
              const [width, height] = event.currentTarget.value.split("x").map(Number);
              studio.edit({ width: width ?? null, height: height ?? null });
            }}
          >
            {sizes.map(({ width, height }) => (
              <option key={`${width}x${height}`} value={`${width}x${height}`}>
                {width} × {height}
              </option>
            ))}
          </select>
        </Field>
        <Field id="scheduler" label="Sampler">
          <select
            id="scheduler"
            data-testid="scheduler"
            value={recipe.scheduler}
            onChange={(event) => studio.edit({ scheduler: event.currentTarget.value })}
          >
            {schedulers.map((name) => (
              <option key={name} value={name}>
                {samplerName(name)}
              </option>
            ))}
          </select>
        </Field>
      </div>
      {offer.imageToImage && <StartPicture studio={studio} />}
    </section>
  );
}
