/** How far loading the model is. */

import type { JSX } from "preact";
import type { LoadProgress } from "../model-api";
import { formatProgress, formatSecondsLeft } from "../text/format";

function progressLabel(progress: LoadProgress | null): string {
  switch (progress?.phase) {
    case "weights":
      return progress.fromCache ? "Reading the model from this device" : "Downloading the model";
    case "compile":
    case "ready":
      return "Preparing the model";
    default:
      return "Looking for the model";
  }
}

/** A strip with the progress of loading; without figures until there are some. */
export function Loading({ progress }: { progress: LoadProgress | null }): JSX.Element {
  const known = progress?.phase === "weights" && progress.totalBytes > 0;
  const left = known && !progress.fromCache ? formatSecondsLeft(progress.secondsLeft) : "";
  return (
    <div class="strip">
      <div class="strip-text">
        <span id="progress-label">{progressLabel(progress)}</span>
        {known && (
          <span class="strip-figures">
            {formatProgress(progress.loadedBytes, progress.totalBytes)}
            {left !== "" && ` · ${left}`}
          </span>
        )}
      </div>
      {known ? (
        <progress data-testid="progress" aria-labelledby="progress-label" value={progress.loadedBytes} max={progress.totalBytes} />
      ) : (
        <progress data-testid="progress" aria-labelledby="progress-label" />
      )}
    </div>
  );
}
