/** What is shown large: the picture being painted, a finished one, or examples of what to ask for. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { formatProgress, formatSecondsLeft, Icon } from "tinyweb-shell";
import type { Recipe } from "../app/recipe";
import type { Job, Shown, Studio } from "../app/studio";
import type { Rgba } from "../model-api";
import { fileName, imageData } from "../picture/convert";
import { samplerName } from "./Controls";

/** For models that say nothing of their own: the small ones draw plain shapes, the others were shown everything. */
const SHAPES = [
  "a red circle",
  "a blue star on a yellow background",
  "a green heart on a white background",
  "a small pink diamond on a black background",
  "a red square to the left of a blue circle",
];
const SCENES = [
  "a lighthouse on a cliff at sunset, oil painting",
  "a fox in the snow, photograph",
  "a bowl of oranges on a wooden table",
  "a small house by a lake, watercolour",
];
const SMALL = 50_000_000; // parameters

function examplesOf({ examples, parameters = 0 }: Studio["offer"]): readonly string[] {
  return examples.length > 0 ? examples : parameters > SMALL ? SCENES : SHAPES;
}

/** Latents as they are now, one pixel each. */
function Preview({ picture }: { picture: Rgba }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    canvas.current?.getContext("2d")?.putImageData(imageData(picture), 0, 0);
  }, [picture]);
  return <canvas ref={canvas} width={picture.width} height={picture.height} data-testid="preview" aria-hidden="true" />;
}

function stageLabel(job: Job): string {
  switch (job.stage) {
    case "waiting":
      return "Waiting for the model";
    case "loading":
      return job.loading?.phase === "weights" && !job.loading.fromCache
        ? "Downloading the next part of the model"
        : "Preparing the next part of the model";
    case "text":
      return "Reading the prompt";
    case "image":
      return "Reading the picture";
    case "steps":
      return job.step === 0 ? "Beginning from noise" : `Step ${job.step} of ${job.steps}`;
    case "decoding":
      return "Painting the pixels";
  }
}

function Painting({ job, waiting }: { job: Job; waiting: boolean }): JSX.Element {
  const { loading } = job;
  const downloading = job.stage === "loading" && loading?.phase === "weights" && loading.totalBytes > 0 && !loading.fromCache;
  const left = job.stage === "steps" && job.step > 0 ? formatSecondsLeft(job.secondsLeft) : "";
  return (
    <figure class="stage-figure" aria-busy="true">
      <div class="frame" style={{ aspectRatio: `${job.width} / ${job.height}` }}>
        {job.preview === null ? <div class="noise" /> : <Preview picture={job.preview} />}
      </div>
      {/* While the model is being loaded its own strip shows how far that is. */}
      {!waiting && (
        <div class="painting">
          <p class="strip-text">
            <span id="painting-label">{stageLabel(job)}</span>
            <span class="strip-figures">{downloading ? formatProgress(loading.loadedBytes, loading.totalBytes) : left}</span>
          </p>
          {job.step === 0 && !downloading ? (
            <progress data-testid="progress" aria-labelledby="painting-label" />
          ) : (
            <progress
              data-testid="progress"
              aria-labelledby="painting-label"
              value={downloading ? loading.loadedBytes : job.step}
              max={downloading ? loading.totalBytes : job.steps}
            />
          )}
        </div>
      )}
    </figure>
  );
}

function settingsText({ steps, guidance, seed, width, height, scheduler, strength }: Recipe): string {
  return [
    `${width} × ${height}`,
    `${steps} ${steps === 1 ? "step" : "steps"}`,
    samplerName(scheduler),
    ...(guidance > 1 ? [`guidance ${guidance}`] : []),
    ...(strength === null ? [] : [`changed ${Math.round(100 * strength)} %`]),
    `seed ${seed}`,
  ]
    .map((figure) => figure.replaceAll(" ", "\u00a0"))
    .join(" · "); // lines break between figures only
}

function Finished({ shown, studio }: { shown: Shown; studio: Studio }): JSX.Element {
  const { recipe, url, id, cut } = shown;
  const caption = useRef<HTMLElement>(null);
  useEffect(() => caption.current?.scrollTo(0, 0), [id]);
  return (
    <figure class="stage-figure">
      <div class="frame" style={{ aspectRatio: `${recipe.width} / ${recipe.height}` }}>
        <img src={url} alt={recipe.prompt} width={recipe.width} height={recipe.height} data-testid="image" data-seed={recipe.seed} />
      </div>
      <figcaption ref={caption}>
        <p class="caption-prompt">{recipe.prompt}</p>
        {recipe.negativePrompt !== "" && <p class="caption-settings">Without {recipe.negativePrompt}</p>}
        <p class="caption-settings">{settingsText(recipe)}</p>
        {cut !== "" && (
          <p class="caption-settings" data-testid="cut">
            The prompt was too long; this was not read: “{cut}”
          </p>
        )}
      </figcaption>
      <div class="stage-actions">
        <a class="button primary" href={url} download={fileName(recipe.prompt, recipe.seed)} data-testid="download">
          <Icon name="download" />
          Download
        </a>
        <button type="button" class="button" data-testid="use-settings" onClick={() => studio.use(recipe)}>
          <Icon name="again" />
          Use settings
        </button>
        {studio.offer.imageToImage && (
          <button type="button" class="button" data-testid="vary" onClick={() => void studio.vary(id)}>
            <Icon name="image" />
            Begin from it
          </button>
        )}
        <button type="button" class="button" data-testid="delete" onClick={() => void studio.remove(id)}>
          <Icon name="trash" />
          Delete
        </button>
      </div>
    </figure>
  );
}

interface StageProps {
  studio: Studio;
  /** The model is being loaded. */
  waiting: boolean;
  onExample: (example: string) => void;
}

export function Stage({ studio, waiting, onExample }: StageProps): JSX.Element {
  const { job, shown } = studio.state;
  if (job !== null)
    return (
      <section class="stage" aria-label="Picture">
        <Painting job={job} waiting={waiting} />
      </section>
    );
  return (
    <section class="stage" aria-label="Picture">
      {shown !== null ? (
        <Finished shown={shown} studio={studio} />
      ) : (
        <>
          <div class="welcome">
            <h2>What shall be painted?</h2>
            <p>Say it in a few words. The picture is made on this device; nothing leaves it.</p>
          </div>
          <ul class="examples" aria-label="Examples">
            {examplesOf(studio.offer)
              .slice(0, 8)
              .map((example) => (
                <li key={example}>
                  <button type="button" class="pill" data-testid="example" onClick={() => onExample(example)}>
                    {example}
                  </button>
                </li>
              ))}
          </ul>
        </>
      )}
    </section>
  );
}
