/** Picture files: which they are, and the small copies of them that are kept. */

import { FileError } from "./text/files";

export const PICTURES = "image/*,.heic,.heif,.avif";
const ENDINGS = /\.(jpe?g|jfif|png|webp|gif|bmp|avif|heic|heif)$/iu;

/** Sides of a copy, at most: enough to be looked at, and to be read anew by another model. */
const SIDE = 1024;
const QUALITY = 0.85;
const MAX_BYTES = 100 * 2 ** 20;

export function isPicture(file: File): boolean {
  return ENDINGS.test(file.name) || (file.type.startsWith("image/") && file.type !== "image/svg+xml");
}

/** A copy to keep, the right way up, without what the camera noted. @throws FileError saying why there is none */
export async function copyOf(file: File): Promise<Blob> {
  if (file.size > MAX_BYTES) throw new FileError(`“${file.name}” is larger than ${MAX_BYTES / 2 ** 20} MB.`);
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new FileError(`“${file.name}” is no picture that this browser can read: save it as JPEG, PNG or WebP.`);
  }
  try {
    const shrink = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
    const [width, height] = [Math.max(1, Math.round(bitmap.width * shrink)), Math.max(1, Math.round(bitmap.height * shrink))];
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d", { alpha: false }) as OffscreenCanvasRenderingContext2D;
    context.imageSmoothingQuality = "high";
    context.fillStyle = "#fff";
    context.fillRect(0, 0, width, height);
    context.drawImage(bitmap, 0, 0, width, height);
    return await canvas.convertToBlob({ type: "image/jpeg", quality: QUALITY });
  } catch {
    throw new FileError(`“${file.name}” is too large a picture for this device.`);
  } finally {
    bitmap.close();
  }
}
