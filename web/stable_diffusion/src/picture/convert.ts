/** Pixels to PNG files and thumbnails. */

import type { Rgba } from "../model-api";

/** Longest side of a thumbnail. */
const THUMB = 256;

function canvasOf(width: number, height: number): { canvas: HTMLCanvasElement; context: CanvasRenderingContext2D } {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  if (context === null) throw new Error("This browser gave no canvas to draw on.");
  return { canvas, context };
}

async function pngOf(canvas: HTMLCanvasElement): Promise<Uint8Array<ArrayBuffer>> {
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
  if (blob === null) throw new Error("This browser could not write the picture as PNG.");
  return new Uint8Array(await blob.arrayBuffer());
}

export function imageData({ data, width, height }: Rgba): ImageData {
  return new ImageData(data, width, height);
}

/** The picture as PNG, and a small one of it. */
export async function filesOf(picture: Rgba): Promise<{ file: Uint8Array<ArrayBuffer>; thumb: Uint8Array<ArrayBuffer> }> {
  const { width, height } = picture;
  const { canvas, context } = canvasOf(width, height);
  context.putImageData(imageData(picture), 0, 0);
  const file = await pngOf(canvas);
  const scale = THUMB / Math.max(width, height);
  if (scale >= 1) return { file, thumb: file };
  const small = canvasOf(Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
  small.context.imageSmoothingQuality = "high";
  small.context.drawImage(canvas, 0, 0, small.canvas.width, small.canvas.height);
  return { file, thumb: await pngOf(small.canvas) };
}

/** What a picture's file is called when it is downloaded: its prompt, as far as every file system takes it. */
export function fileName(prompt: string, seed: number): string {
  const words = prompt
    .normalize("NFKD")
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-+|-+$/gu, "")
    .slice(0, 60);
  return `${words === "" ? "picture" : words}-${seed}.png`;
}
