/** Boxes between two looks of the detector: each glides from where it was to where it was found last. */

import type { Detection } from "../model-api";

type Box = Detection["box"];

interface Track {
  found: Detection;
  box: Box;
}

/** Milliseconds in which most of the way is made. */
const GLIDE_MS = 60;
/** What overlaps less was another object. */
const SAME = 0.2;

export class Tracks {
  private tracks: Track[] = [];
  private at = 0;

  /** @param still the picture does not move: boxes are at their place at once */
  update(found: readonly Detection[], still: boolean): void {
    const free = new Set(still ? [] : this.tracks);
    this.tracks = found.map((one) => {
      let best: Track | undefined;
      let overlap = SAME;
      for (const track of free) {
        const share = track.found.index === one.index ? overlapOf(track.box, one.box) : 0;
        if (share > overlap) [best, overlap] = [track, share];
      }
      if (best !== undefined) free.delete(best);
      return { found: one, box: best?.box ?? one.box };
    });
  }

  /** What to draw at a time, in milliseconds; times grow. */
  step(time: number): Detection[] {
    const rest = Math.exp(-Math.max(0, time - this.at) / GLIDE_MS);
    this.at = time;
    return this.tracks.map((track) => {
      track.box = track.box.map((value, i) => value * rest + (track.found.box[i] as number) * (1 - rest)) as Box;
      return { ...track.found, box: track.box };
    });
  }
}

export function overlapOf(a: Box, b: Box): number {
  const across = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const down = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  const shared = Math.max(0, across) * Math.max(0, down);
  const area = ([x1, y1, x2, y2]: Box): number => (x2 - x1) * (y2 - y1);
  return shared > 0 ? shared / (area(a) + area(b) - shared) : 0;
}
