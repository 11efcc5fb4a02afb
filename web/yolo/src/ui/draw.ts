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

/** Of a box's width, what its label may take. */
const ROOM = 1.2;

/** Neighbours among the labels differ clearly; white is readable on all of them. */
export function colourOf(index: number): string {
  return `hsl(${Math.round((index * 137.508 + 165) % 360)} 72% 36%)`;
}

export function drawBoxes(context: CanvasRenderingContext2D, found: readonly Detection[], { width, scale, ratio, mirrored }: View): void {
  const line = 2.5 * ratio;
  const size = 13 * ratio;
  const [padX, padY] = [6 * ratio, 3 * ratio];
  context.font = `600 ${size}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
  context.textBaseline = "middle";
  context.lineJoin = "round";
  // The surest come last, on top.
  for (const { label, index, score, box } of [...found].reverse()) {
    const [x1, y1, x2, y2] = box.map((value) => value * scale) as Detection["box"];
    const left = mirrored ? width - x2 : x1;
    context.strokeStyle = "rgb(255 255 255 / 85%)";
    context.lineWidth = line + 2 * ratio;
    context.strokeRect(left, y1, x2 - x1, y2 - y1);
    context.strokeStyle = colourOf(index);
    context.lineWidth = line;
    context.strokeRect(left, y1, x2 - x1, y2 - y1);
    const full = `${label} ${Math.round(score * 100)} %`;
    // Small boxes stand close together: there the label must do.
    const text = context.measureText(full).width > ROOM * (x2 - x1) + ROOM * size ? label : full;
    const high = size + 2 * padY;
    const wide = context.measureText(text).width + 2 * padX;
    const x = Math.max(0, Math.min(left - line / 2, width - wide));
    const y = y1 >= high ? y1 - high : y1;
    context.fillStyle = colourOf(index);
    context.beginPath();
    context.roundRect(x, y, wide, high, 4 * ratio);
    context.fill();
    context.fillStyle = "#fff";
    context.fillText(text, x + padX, y + high / 2 + ratio / 2);
  }
}
