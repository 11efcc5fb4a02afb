// A chat in sixty lines. Put it beside the model/ that `tinyweb export chat` wrote.
import { element, fail, say, showProgress } from "./common.js";
import { load } from "./model/model.js";

const messages = [{ role: "system", content: "You are a helpful assistant." }];
const [form, question, send, stop] = ["form", "question", "send", "stop"].map(element);
let running = new AbortController();

/** @param {string} text */
function show(text) {
  const paragraph = document.createElement("p");
  paragraph.textContent = text;
  element("conversation").append(paragraph);
  return paragraph;
}

try {
  const chat = await load({
    onProgress: showProgress,
    // A phone that ran out of memory the last time gets a smaller setting.
    onInterrupted: (previous) => previous.recommended,
  });
  say(`Ready: ${chat.info.model} on ${chat.info.backend} (${chat.info.adapter}).`);
  send.disabled = false;

  form.addEventListener("submit", async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (send.disabled || question.value === "") return;
    const content = question.value;
    question.value = "";
    send.disabled = true;
    stop.disabled = false;
    running = new AbortController();
    show(content);
    const answer = show("…");
    messages.push({ role: "user", content });
    let text = "";
    try {
      const answering = chat.generate(messages, { signal: running.signal });
      for await (const part of answering) {
        text += part.text;
        answer.textContent = text;
      }
      const { tokensPerSecond } = await answering.result;
      say(`${tokensPerSecond.toFixed(0)} tokens per second.`);
    } catch (error) {
      fail(error);
    }
    if (text) messages.push({ role: "assistant", content: text });
    else messages.pop();
    send.disabled = false;
    stop.disabled = true;
  });
  stop.addEventListener("click", () => running.abort());
} catch (error) {
  fail(error);
}
