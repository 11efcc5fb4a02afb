/** The picture as it is now, with its boxes, as a file. */

import type { Viewer } from "../app/viewer";
import { sizeOf } from "../app/sources";
import { drawBoxes } from "./draw";

/** Larger pictures are scaled down: phones refuse larger canvases. */
const MOST = 4096;

export async function snapshot({ state }: Viewer): Promise<Blob | null> {
  const { source, found } = state;
  if (source === null) return null;
  const natural = sizeOf(source);
  const scale = Math.min(1, MOST / Math.max(natural.width, natural.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(natural.width * scale);
  canvas.height = Math.round(natural.height * scale);
  const context = canvas.getContext("2d");
  if (context === null) return null;
  const mirrored = source.kind !== "image" && source.mirrored;
  if (mirrored) context.setTransform(-1, 0, 0, 1, canvas.width, 0);
  context.drawImage(source.element, 0, 0, canvas.width, canvas.height);
  context.resetTransform();
  const ratio = Math.max(1, canvas.width / 640);
  drawBoxes(context, found ?? [], { width: canvas.width, height: canvas.height, scale, ratio, mirrored });
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

export function download(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
