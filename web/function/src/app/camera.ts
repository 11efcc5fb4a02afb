/** The camera as a source of pictures. */

import { FeedError } from "../data/problem";
import type { Source } from "./feeds";

/** @throws FeedError saying why there is none */
export async function openCamera(): Promise<Source> {
  const media = navigator.mediaDevices as MediaDevices | undefined;
  if (media?.getUserMedia === undefined) {
    throw new FeedError("Browsers give the camera only to secure pages: open this page over https, or on localhost.");
  }
  let stream: MediaStream;
  try {
    stream = await media.getUserMedia({ audio: false, video: { facingMode: { ideal: "environment" }, width: { ideal: 1280 } } });
  } catch (error) {
    const refused = /NotAllowed|Security/u.test((error as Partial<DOMException>).name ?? "");
    throw new FeedError(
      refused
        ? "The camera may not be used. Allow it for this page (beside the address, or in the device's settings), then try again."
        : "The camera could not be started: there is none, or another program is using it.",
    );
  }
  const element = document.createElement("video");
  element.muted = true;
  element.playsInline = true;
  element.srcObject = stream;
  await element.play();
  return { element, name: stream.getVideoTracks()[0]?.label ?? "camera" };
}

/** Frees what a source holds: the camera's light goes out. */
export function closeSource(source: Source | null): void {
  if (source === null) return;
  const { element } = source;
  if (element instanceof HTMLVideoElement) {
    element.pause();
    if (element.srcObject instanceof MediaStream) for (const track of element.srcObject.getTracks()) track.stop();
    element.srcObject = null;
  } else element.close();
}
