/** What can be looked at: a picture, a video, the camera. Each brings an element that shows it. */

import type { Facing } from "./settings";

export interface ImageSource {
  kind: "image";
  /** A canvas where the file may be an animation. */
  element: HTMLImageElement | HTMLCanvasElement;
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

export function sizeOf({ element }: Source): { width: number; height: number } {
  if (element instanceof HTMLImageElement) return { width: element.naturalWidth, height: element.naturalHeight };
  if (element instanceof HTMLVideoElement) return { width: element.videoWidth, height: element.videoHeight };
  return { width: element.width, height: element.height };
}

const MAY_MOVE = /^image\/(gif|webp)$/u;
/** Pixels; phones have none for larger canvases. */
const MOST_ON_CANVAS = 16_000_000;

/** Browsers tell pictures from videos by the name; where they cannot, both are tried. */
export async function openFile(file: File): Promise<Source> {
  const video = file.type.startsWith("video/");
  const known = video || file.type.startsWith("image/");
  const ways = video ? [openVideo] : known ? [openImage] : [openImage, openVideo];
  for (const open of ways) {
    const source = await open(file);
    if (source !== null) return source;
  }
  const kind = video ? "video that this browser can play" : "picture or video that this browser can show";
  throw new SourceError("bad-file", `${file.name === "" ? "This" : file.name} is no ${kind}.`);
}

/** Null for what is no picture. */
async function openImage(file: File): Promise<ImageSource | null> {
  const image = new Image();
  image.src = URL.createObjectURL(file);
  const shown = await image.decode().then(
    () => image.naturalWidth > 0,
    () => false,
  );
  if (!shown) {
    URL.revokeObjectURL(image.src);
    return null;
  }
  const label = file.name === "" ? "The picture that is looked at" : file.name;
  const still = MAY_MOVE.test(file.type) ? await firstOf(file).catch(() => null) : null;
  if (still === null) {
    image.alt = label;
    return { kind: "image", element: image, name: file.name };
  }
  URL.revokeObjectURL(image.src);
  still.setAttribute("role", "img");
  still.setAttribute("aria-label", label);
  return { kind: "image", element: still, name: file.name };
}

/** Of an animation the image that is searched, so that no other is shown. */
async function firstOf(file: File): Promise<HTMLCanvasElement> {
  const image = await createImageBitmap(file);
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  // what is too large for a canvas moves
  // in memory: what is on the GPU is lost with it
  const context = image.width * image.height > MOST_ON_CANVAS ? null : canvas.getContext("2d", { willReadFrequently: true });
  context?.drawImage(image, 0, 0);
  image.close();
  if (context === null) throw new Error("no canvas");
  return canvas;
}

/** Null for what is no video, or one without pictures. */
async function openVideo(file: File): Promise<MovingSource | null> {
  const element = player();
  element.loop = true;
  element.src = URL.createObjectURL(file);
  const started = element.play().catch(() => undefined); // phones read nothing before; refused, it stands at its first frame
  const shown = await begun(element).then(
    () => element.videoWidth > 0,
    () => false,
  );
  const source: MovingSource = { kind: "video", element, name: file.name, mirrored: false, cameras: 0 };
  await (shown ? started : undefined);
  if (shown) return source;
  close(source);
  return null;
}

/**
 * The camera that faces the reader, or the other.
 * @param other not this one, by its id: where the cameras do not say where they face, the next of them
 */
export async function openCamera(facing: Facing, other?: string): Promise<MovingSource> {
  const media = navigator.mediaDevices as MediaDevices | undefined;
  if (media?.getUserMedia === undefined) {
    throw new SourceError("no-camera", "Browsers give the camera only to secure pages: open this page over https, or on localhost.");
  }
  const ask = async (which: MediaTrackConstraints): Promise<MediaStream> => {
    try {
      return await media.getUserMedia({ audio: false, video: { ...which, width: { ideal: 1280 }, height: { ideal: 720 } } });
    } catch (error) {
      throw refused(error);
    }
  };
  let stream = await ask({ facingMode: { ideal: facing } });
  const cameras = (await media.enumerateDevices().catch(() => []))
    .filter(({ kind }) => kind === "videoinput")
    .map(({ deviceId }) => deviceId);
  if (other !== undefined && idOf(stream) === other && cameras.length > 1) {
    end(stream);
    stream = await ask({ deviceId: { exact: cameras[(cameras.indexOf(other) + 1) % cameras.length] as string } });
  }
  const element = player();
  element.srcObject = stream;
  try {
    await Promise.all([begun(element), element.play()]);
  } catch {
    close({ kind: "camera", element, name: "", mirrored: false, cameras: 0 });
    throw new SourceError("no-camera", "The camera gave no picture: another program may be using it. Close that and try again.");
  }
  const [track] = stream.getVideoTracks();
  return {
    kind: "camera",
    element,
    name: track?.label ?? "",
    mirrored: (track?.getSettings().facingMode ?? facing) === "user",
    cameras: cameras.length,
  };
}

/** Of the camera that is watched. */
export function cameraOf({ element }: Source): string | undefined {
  return element instanceof HTMLVideoElement && element.srcObject instanceof MediaStream ? idOf(element.srcObject) : undefined;
}

const idOf = (stream: MediaStream): string | undefined => stream.getVideoTracks()[0]?.getSettings().deviceId;

const end = (stream: MediaStream): void => {
  for (const track of stream.getTracks()) track.stop();
};

/** Frees what the source holds: the camera's light goes out. */
export function close({ element }: Source): void {
  if (element instanceof HTMLVideoElement) {
    element.pause();
    if (element.srcObject instanceof MediaStream) end(element.srcObject);
    element.srcObject = null;
  }
  if (!(element instanceof HTMLCanvasElement)) {
    if (element.src.startsWith("blob:")) URL.revokeObjectURL(element.src);
    element.removeAttribute("src");
  }
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

function refused(error: unknown): SourceError {
  switch ((error as Partial<DOMException>).name) {
    case "NotAllowedError":
    case "SecurityError":
      return new SourceError(
        "camera-refused",
        "The camera may not be used. Allow it for this page (beside the address, or in the device's settings), then try again.",
      );
    case "NotFoundError":
    case "OverconstrainedError":
      return new SourceError("no-camera", "There is no camera here. Choose a picture or a video instead.");
    default:
      return new SourceError("no-camera", "The camera could not be started: another program may be using it. Close that and try again.");
  }
}
