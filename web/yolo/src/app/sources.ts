/** What can be looked at: a picture, a video, the camera. Each brings an element that shows it. */

import type { Facing } from "./settings";

export interface ImageSource {
  kind: "image";
  element: HTMLImageElement;
  name: string;
}

export interface MovingSource {
  kind: "video" | "camera";
  element: HTMLVideoElement;
  name: string;
  /** Shown the other way round, as a mirror would. The detector sees it as it is. */
  mirrored: boolean;
  /** Cameras there are. */
  cameras: number;
}

export type Source = ImageSource | MovingSource;

/** A source that could not be opened; the message says what to do. */
export class SourceError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

export function sizeOf(source: Source): { width: number; height: number } {
  if (source.kind === "image") return { width: source.element.naturalWidth, height: source.element.naturalHeight };
  return { width: source.element.videoWidth, height: source.element.videoHeight };
}

export function openFile(file: File): Promise<Source> {
  return file.type.startsWith("video/") ? openVideo(file) : openImage(file);
}

async function openImage(file: File): Promise<ImageSource> {
  const element = new Image();
  element.src = URL.createObjectURL(file);
  element.alt = file.name === "" ? "The picture that is looked at" : file.name;
  try {
    await element.decode();
  } catch {
    URL.revokeObjectURL(element.src);
    throw new SourceError("bad-file", `${nameOf(file)} is no picture or video that this browser can show.`);
  }
  return { kind: "image", element, name: file.name };
}

async function openVideo(file: File): Promise<MovingSource> {
  const element = player();
  element.loop = true;
  element.src = URL.createObjectURL(file);
  try {
    await begun(element);
  } catch {
    URL.revokeObjectURL(element.src);
    throw new SourceError("bad-file", `${nameOf(file)} is no video that this browser can play.`);
  }
  await element.play().catch(() => undefined); // then it stands at its first frame
  return { kind: "video", element, name: file.name, mirrored: false, cameras: 0 };
}

export async function openCamera(facing: Facing): Promise<MovingSource> {
  const media = navigator.mediaDevices as MediaDevices | undefined;
  if (media?.getUserMedia === undefined) {
    throw new SourceError("no-camera", "Browsers give the camera only to secure pages: open this page over https, or on localhost.");
  }
  let stream: MediaStream;
  try {
    stream = await media.getUserMedia({ audio: false, video: { facingMode: { ideal: facing }, width: { ideal: 1280 }, height: { ideal: 720 } } });
  } catch (error) {
    throw refused(error);
  }
  const element = player();
  element.srcObject = stream;
  try {
    await begun(element);
    await element.play();
  } catch {
    close({ kind: "camera", element, name: "", mirrored: false, cameras: 0 });
    throw new SourceError("no-camera", "The camera gave no picture: another program may be using it. Close that and try again.");
  }
  const [track] = stream.getVideoTracks();
  const devices = await media.enumerateDevices().catch(() => []);
  return {
    kind: "camera",
    element,
    name: track?.label ?? "",
    mirrored: (track?.getSettings().facingMode ?? facing) === "user",
    cameras: devices.filter(({ kind }) => kind === "videoinput").length,
  };
}

/** Frees what the source holds: the camera's light goes out. */
export function close(source: Source): void {
  const { element } = source;
  if (element instanceof HTMLVideoElement) {
    element.pause();
    if (element.srcObject instanceof MediaStream) for (const track of element.srcObject.getTracks()) track.stop();
    element.srcObject = null;
  }
  if (element.src.startsWith("blob:")) URL.revokeObjectURL(element.src);
  element.removeAttribute("src");
  element.remove();
}

function player(): HTMLVideoElement {
  const element = document.createElement("video");
  element.muted = true;
  element.playsInline = true;
  element.disablePictureInPicture = true;
  element.setAttribute("aria-label", "The video that is looked at");
  return element;
}

/** Until the first frame is there. */
function begun(element: HTMLVideoElement): Promise<void> {
  return new Promise((resolve, reject) => {
    element.addEventListener("loadeddata", () => resolve(), { once: true });
    element.addEventListener("error", () => reject(new Error("no frame")), { once: true });
  });
}

function nameOf(file: File): string {
  return file.name === "" ? "This" : file.name;
}

function refused(error: unknown): SourceError {
  switch ((error as Partial<DOMException>).name) {
    case "NotAllowedError":
    case "SecurityError":
      return new SourceError("camera-refused", "The camera may not be used. Allow it for this page (beside the address, or in the device's settings), then try again.");
    case "NotFoundError":
    case "OverconstrainedError":
      return new SourceError("no-camera", "There is no camera here. Choose a picture or a video instead.");
    default:
      return new SourceError("no-camera", "The camera could not be started: another program may be using it. Close that and try again.");
  }
}
