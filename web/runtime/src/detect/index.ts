/** Object detection: `loadDetector(url)`, then `detect(image)` gives boxes in the image's pixels. */

export {
  Detector,
  loadDetector,
  type DetectOptions,
  type Detection,
  type Detections,
  type DetectorInfo,
  type DetectTimes,
} from "./detector.js";
export type { Picture, Pixels } from "./picture.js";
