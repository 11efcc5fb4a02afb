import { expect, test } from "vitest";
import { parseSettings } from "../../src/app/settings";
import { overlapOf, Tracks } from "../../src/app/tracks";
import { pageTitle, parseFacts, type Detection } from "../../src/model-api";

const found = (index: number, ...box: Detection["box"]): Detection => ({ label: `kind ${index}`, index, score: 0.9, box });
const at = (tracks: Tracks, time: number): number[][] => tracks.step(time).map(({ box }) => box.map(Math.round));

test("a box glides to where it was found, and gets there", () => {
  const tracks = new Tracks();
  tracks.update([found(1, 0, 0, 100, 100)], false);
  expect(at(tracks, 0)).toEqual([[0, 0, 100, 100]]);
  tracks.update([found(1, 20, 0, 120, 100)], false);
  const [[left] = []] = at(tracks, 60);
  expect(left).toBeGreaterThan(5);
  expect(left).toBeLessThan(20);
  expect(at(tracks, 2000)).toEqual([[20, 0, 120, 100]]);
});

test("another class, another place and a still picture are there at once", () => {
  const tracks = new Tracks();
  tracks.update([found(1, 0, 0, 100, 100)], false);
  tracks.step(0);
  tracks.update([found(2, 10, 0, 110, 100), found(1, 500, 0, 600, 100)], false);
  expect(at(tracks, 1)).toEqual([
    [10, 0, 110, 100],
    [500, 0, 600, 100],
  ]);
  tracks.update([found(1, 510, 0, 610, 100)], true);
  expect(at(tracks, 2)).toEqual([[510, 0, 610, 100]]);
});

test("overlap", () => {
  expect(overlapOf([0, 0, 10, 10], [0, 5, 10, 15])).toBeCloseTo(1 / 3);
  expect(overlapOf([0, 0, 10, 10], [10, 0, 20, 10])).toBe(0);
  expect(overlapOf([0, 0, 0, 0], [0, 0, 0, 0])).toBe(0);
});

test("settings and facts are made of anything", () => {
  expect(parseSettings(undefined)).toMatchObject({ confidence: null, iou: null, hidden: [], facing: "environment" });
  expect(parseSettings({ confidence: 0.3, iou: 7, hidden: ["a", 3], facing: "user" })).toMatchObject({
    confidence: 0.3,
    iou: null,
    hidden: ["a"],
    facing: "user",
  });
  expect(parseFacts(null)).toEqual({ name: "", labels: [], confidence: 0.25, iou: 0.7 });
  expect(parseFacts({ name: "n", labels: ["a", 1], defaults: { confidence: 0.4, iou: -1 } })).toEqual({
    name: "n",
    labels: ["a"],
    confidence: 0.4,
    iou: 0.7,
  });
  expect(pageTitle({ name: "yolov8n" })).toBe("yolov8n");
  expect(pageTitle({ name: "tinyyolo" })).toBe("TinyYOLO");
});
