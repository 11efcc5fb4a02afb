import { deflateSync } from "node:zlib";
import { expect, test } from "vitest";
import type { Recipe } from "../../src/app/recipe";
import { commonText, embedRecipe, parseCommon, readRecipe } from "../../src/picture/metadata";
import { crc32, isPng, textsOf, withTexts } from "../../src/picture/png";

function chunk(type: string, data: Uint8Array): number[] {
  const body = [...new TextEncoder().encode(type), ...data];
  const [length, crc] = [new DataView(new ArrayBuffer(4)), new DataView(new ArrayBuffer(4))];
  length.setUint32(0, data.length);
  crc.setUint32(0, crc32(Uint8Array.from(body)));
  return [...new Uint8Array(length.buffer), ...body, ...new Uint8Array(crc.buffer)];
}

/** One white pixel. */
const PIXEL = Uint8Array.from([
  137,
  80,
  78,
  71,
  13,
  10,
  26,
  10,
  ...chunk("IHDR", Uint8Array.of(0, 0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0)),
  ...chunk("IDAT", deflateSync(Uint8Array.of(0, 255, 255, 255))),
  ...chunk("IEND", new Uint8Array()),
]);

const RECIPE: Recipe = {
  prompt: "a red circle, on\na white background",
  negativePrompt: "blue: a lot",
  steps: 20,
  guidance: 7.5,
  seed: 4_294_967_295,
  width: 128,
  height: 192,
  scheduler: "euler-ancestral",
  model: "tinysd",
  strength: null,
};

test("the checksum is the standard's", () => {
  expect(crc32(new TextEncoder().encode("123456789"))).toBe(0xcbf43926);
});

test.each(["plain", "äöü ÿ", "日本語 😀 “quoted”", "two\nlines", ""])("text %j goes in and comes out", (text) => {
  const png = withTexts(PIXEL, { Title: text, Other: "x" });
  expect(isPng(png)).toBe(true);
  expect(textsOf(png)).toEqual({ Title: text, Other: "x" });
  // The picture's own chunks stay as they are, and a text that is there already is replaced.
  const again = withTexts(png, { Title: "new" });
  expect(textsOf(again)).toEqual({ Title: "new", Other: "x" });
  expect([...again.slice(-30)]).toEqual([...PIXEL.slice(-30)]);
});

test("settings go in and come out, exactly", () => {
  expect(readRecipe(embedRecipe(PIXEL, RECIPE))).toEqual(RECIPE);
  const strange = { ...RECIPE, prompt: "猫", strength: 0.35 };
  expect(readRecipe(embedRecipe(PIXEL, strange))).toEqual(strange);
});

test("the lines that other programs write are understood", () => {
  expect(parseCommon(commonText(RECIPE))).toEqual(RECIPE);
  const other =
    'a cat, sitting\nNegative prompt: dog, ugly\nmore\nSteps: 30, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 6.5, Seed: 42, Size: 512x768, Model hash: abc, Model: sd, "v1.5"';
  expect(parseCommon(other)).toMatchObject({
    prompt: "a cat, sitting",
    negativePrompt: "dog, ugly\nmore",
    steps: 30,
    guidance: 6.5,
    seed: 42,
    width: 512,
    height: 768,
    scheduler: "dpm++2m",
  });
  expect(parseCommon("just words")).toBeNull();
});

test("broken and foreign files have no settings", () => {
  expect(readRecipe(PIXEL)).toBeNull();
  expect(readRecipe(new Uint8Array())).toBeNull();
  expect(readRecipe(new TextEncoder().encode("no picture"))).toBeNull();
  const whole = embedRecipe(PIXEL, RECIPE);
  for (let length = 0; length < whole.length; length += 7) expect(() => readRecipe(whole.slice(0, length))).not.toThrow();
  const wild = whole.slice();
  wild.fill(255, 33, 60); // lengths beyond the file
  expect(() => readRecipe(wild)).not.toThrow();
  expect(readRecipe(withTexts(PIXEL, { tinyweb: "{}", parameters: "none" }))).toBeNull();
  expect(readRecipe(withTexts(PIXEL, { tinyweb: "not JSON" }))).toBeNull();
  expect(() => withTexts(Uint8Array.of(1, 2, 3), {})).toThrow(/PNG/u);
});
