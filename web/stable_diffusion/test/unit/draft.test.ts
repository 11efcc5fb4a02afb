import { expect, test } from "vitest";
import { complete, draftOf, parseDraft, UNKNOWN_OFFER, type Offer } from "../../src/app/draft";
import { pageTitle, parseFacts } from "../../src/app/facts";
import { parseRecipe } from "../../src/app/recipe";
import { fileName } from "../../src/picture/convert";

const OFFER: Offer = {
  ...UNKNOWN_OFFER,
  sizes: [
    { width: 128, height: 128 },
    { width: 128, height: 192 },
  ],
  schedulers: ["ddim", "euler"],
  defaults: { scheduler: "ddim", steps: 20, guidance: 5, strength: 0.75 },
};

test("what was not chosen is the model's default", () => {
  const draft = parseDraft({ prompt: "  a cat ", steps: 7.4, scheduler: "euler" }, 11);
  expect(complete(draft, OFFER)).toEqual({
    prompt: "a cat",
    negativePrompt: "",
    steps: 7,
    guidance: 5,
    seed: 11,
    width: 128,
    height: 128,
    scheduler: "euler",
    strength: 0.75,
  });
});

test("what this model has not becomes what it has", () => {
  const draft = parseDraft({ prompt: "x", negativePrompt: "y", width: 512, height: 512, scheduler: "magic", guidance: 9 }, 1);
  expect(complete(draft, { ...OFFER, guidance: false })).toMatchObject({
    width: 128,
    height: 128,
    scheduler: "ddim",
    guidance: 1,
    negativePrompt: "",
  });
});

test("nonsense in storage becomes a draft", () => {
  expect(parseDraft(null, 5)).toMatchObject({ prompt: "", steps: null, seed: 5, seedLocked: false });
  expect(parseDraft({ steps: NaN, seed: -3, guidance: 1000, prompt: 7, width: "x" }, 5)).toMatchObject({
    steps: null,
    seed: 0,
    guidance: 20,
    prompt: "",
    width: null,
  });
});

test("a recipe becomes a draft that keeps its seed", () => {
  const recipe = parseRecipe({ prompt: "x", seed: 9, steps: 12, width: 128, height: 192, scheduler: "euler", guidance: 3, strength: 0.5 });
  expect(recipe).not.toBeNull();
  if (recipe === null) return;
  const draft = draftOf(recipe, parseDraft({}, 1));
  expect(draft).toMatchObject({ seed: 9, seedLocked: true, steps: 12 });
  expect(complete(draft, OFFER)).toMatchObject({ width: 128, height: 192, guidance: 3, strength: 0.5, seed: 9 });
});

test("recipes are checked", () => {
  expect(parseRecipe(undefined)).toBeNull();
  expect(parseRecipe({ steps: 3 })).toBeNull();
  expect(parseRecipe({ prompt: "x", steps: Infinity, seed: 1e300, strength: 7 })).toMatchObject({
    steps: 0,
    seed: Number.MAX_SAFE_INTEGER,
    strength: 1,
  });
});

test("what the loader says is taken as far as it makes sense", () => {
  expect(parseFacts({ name: "x", sizes: [{ width: 1 }], defaults: {}, examples: [1] })).toEqual({ model: "x" });
  expect(pageTitle({ name: "tinysd" })).toBe("TinyPaint");
  expect(pageTitle({ name: "SD-Turbo" })).toBe("SD-Turbo");
  expect(pageTitle(undefined)).toBe("TinyPaint");
});

test("file names", () => {
  expect(fileName("A red circle / ../ on: <white>", 5)).toBe("A-red-circle-on-white-5.png");
  expect(fileName("…", 0)).toBe("picture-0.png");
  expect(fileName("猫", 1)).toBe("猫-1.png");
});
