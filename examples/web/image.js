// A picture from text. Put it beside the model/ that `tinyweb export image` wrote.
import { element, fail, say, showProgress } from "./common.js";
import { load } from "./model/model.js";

const [form, prompt, generate, stop, picture] = ["form", "prompt", "generate", "stop", "picture"].map(element);
let running = new AbortController();

try {
  const generator = await load({ onProgress: showProgress });
  say(`Ready: ${generator.info.model} on ${generator.info.backend} (${generator.info.adapter}).`);
  prompt.value = generator.info.examples[0] ?? "";
  generate.disabled = false;

  form.addEventListener("submit", async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (generate.disabled) return;
    generate.disabled = true;
    stop.disabled = false;
    running = new AbortController();
    try {
      const bitmap = await generator.textToImage(prompt.value, {
        signal: running.signal,
        onStep: ({ step, steps }) => say(`Step ${step} of ${steps}`),
      });
      [picture.width, picture.height, picture.hidden] = [bitmap.width, bitmap.height, false];
      picture.getContext("2d").drawImage(bitmap, 0, 0);
      say("Done.");
    } catch (error) {
      fail(error);
    }
    generate.disabled = false;
    stop.disabled = true;
  });
  stop.addEventListener("click", () => running.abort());
} catch (error) {
  fail(error);
}
