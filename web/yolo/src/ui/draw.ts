/** Boxes with labels on a canvas. */

import type { Detection } from "../model-api";

export interface View {
  width: number;
  height: number;
  /** Pixels of the canvas for one of the picture. */
  scale: number;
  /** Pixels of the canvas for one of the page. */
  ratio: number;
  mirrored: boolean;
}

/** Neighbours among the labels differ clearly; white is readable on all of them. */
export function colourOf(index: number): string {
  return `hsl(${Math.round((index * 137.508 + 165) % 360)} 72% 36%)`;
}

/** Of the width of a box and a letter, what a label with its score may take: where boxes stand close the label must do. */
const ROOM = 1.2;

/** A box on the canvas. */
interface Seat {
  left: number;
  top: number;
  wide: number;
  tall: number;
}

/** A label on the canvas. */
interface Tag {
  text: string;
  x: number;
  y: number;
  width: number;
}

export function drawBoxes(
  context: CanvasRenderingContext2D,
  found: readonly Detection[],
  { width, height, scale, ratio, mirrored }: View,
): void {
  const line = 2.5 * ratio;
  const size = 13 * ratio;
  const [padX, padY] = [6 * ratio, 3 * ratio];
  const high = size + 2 * padY;
  context.font = `600 ${size}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
  context.textBaseline = "middle";
  context.lineJoin = "round";
  const placed: Tag[] = [];
  const isFree = ({ x, y, width: wide }: Tag): boolean =>
    y >= 0 && y + high <= height && placed.every((tag) => x >= tag.x + tag.width || tag.x >= x + wide || Math.abs(y - tag.y) >= high);
  /** Above, below or in its box, where no surer one has its label; with the score where there is room. */
  const place = ({ label, score }: Detection, { left, top, wide, tall }: Seat): Tag => {
    const full = `${label} ${Math.round(score * 100)} %`;
    const texts = context.measureText(full).width > ROOM * (wide + size) ? [label] : [full, label];
    const tags = [top - high, top + tall, top].flatMap((y) =>
      texts.map((text): Tag => {
        const room = context.measureText(text).width + 2 * padX;
        return { text, x: Math.max(0, Math.min(left - line / 2, width - room)), y, width: room };
      }),
    );
    return tags.find(isFree) ?? { ...(tags[texts.length - 1] as Tag), y: Math.max(0, top - high) };
  };
  const seats = found.map(({ box }): Seat => {
    const [x1, y1, x2, y2] = box.map((value) => value * scale) as Detection["box"];
    return { left: mirrored ? width - x2 : x1, top: y1, wide: x2 - x1, tall: y2 - y1 };
  });
  for (const [i, seat] of seats.entries()) placed.push(place(found[i] as Detection, seat));
  // The surest come last, on top; labels above all boxes.
  for (let i = found.length - 1; i >= 0; i--) {
    const { left, top, wide, tall } = seats[i] as Seat;
    context.strokeStyle = "rgb(255 255 255 / 85%)";
    context.lineWidth = line + 2 * ratio;
    context.strokeRect(left, top, wide, tall);
    context.strokeStyle = colourOf((found[i] as Detection).index);
    context.lineWidth = line;
    context.strokeRect(left, top, wide, tall);
  }
  for (let i = found.length - 1; i >= 0; i--) {
    const { text, x, y, width: wide } = placed[i] as Tag;
    context.fillStyle = colourOf((found[i] as Detection).index);
    context.beginPath();
    context.roundRect(x, y, wide, high, 4 * ratio);
    context.fill();
    context.fillStyle = "#fff";
    context.fillText(text, x + padX, y + high / 2 + ratio / 2);
  }
}
