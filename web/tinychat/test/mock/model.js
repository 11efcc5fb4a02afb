// @ts-check
/**
 * A pretended model with the interface of the generated loader: answers a few prompts from a list and can fail in every
 * way the page must cope with. Besides what pretend.js knows, `?mock=` understands:
 *
 *   lost            the GPU device is lost in the middle of an answer; the runtime recovers by itself
 *   lost-fallback   the same, and after `mock.continue()` it goes on with WASM
 *   lost-hard       the first answer fails with "device-lost"
 *   broken          every answer fails after a few words
 *   small           prompts of more than 200 characters do not fit; the oldest messages are left out
 *   thinking        the first token of an answer never comes
 */

import { asked, fail, mock, MODEL_BYTES, pause, pretendEvents, pretendLoading } from "./pretend.js";

/**
 * @typedef {import("tinyweb-shell").LoadOptions} LoadOptions
 * @typedef {import("tinyweb-shell").ModelInfo} ModelInfo
 * @typedef {import("../../src/model-api").PromptMessage} PromptMessage
 * @typedef {import("../../src/model-api").Chat} Chat
 * @typedef {import("../../src/model-api").ChatInfo} ChatInfo
 * @typedef {import("../../src/model-api").AnswerFigures} AnswerFigures
 * @typedef {import("../../src/model-api").GenerateOptions} GenerateOptions
 */

export const info = {
  name: "tinychat-7m",
  parameters: 7_343_360,
  quant: "q8",
  context: 512,
  modelBytes: MODEL_BYTES,
  defaults: { temperature: 0.7, topP: 0.95, topK: 40, repetitionPenalty: 1, maxTokens: 256 },
};

const MARKDOWN = `## Sorting in Python

Use \`sorted\` for a **new list**, or \`list.sort\` to sort *in place*:

\`\`\`python
def smallest_first(numbers: list[int]) -> list[int]:
    """Return the numbers from smallest to largest."""
    return sorted(numbers)  # this is a long comment that makes the line wider than a phone is

print(smallest_first([49, 93, 3, 14]))
\`\`\`

1. It is stable: equal items keep their order.
2. It takes a \`key\` function:
   - \`key=len\` sorts by length
   - \`key=str.lower\` ignores case

| Method | In place | Returns |
| --- | :-: | ---: |
| \`sorted(x)\` | no | a new list |
| \`x.sort()\` | yes | \`None\` |

> Both take O(n log n) comparisons.

See the [documentation](https://docs.python.org/3/howto/sorting.html) for more.`;

const STORY =
  "Once upon a time there was a little fox named Juniper. She lived at the edge of a quiet wood, where the moss was soft and the stream sang all day. " +
  "One evening she saw a small light between the trees. “Who are you?” asked the little fox. “I am a star,” said the light, “and I have lost my way home.” " +
  "So Juniper climbed the tallest hill, held the star up high, and blew. Up it went, higher and higher, until it found its place. " +
  "And every night since then one star twinkles a little brighter, just for her.";

/** @param {readonly PromptMessage[]} messages */
function reply(messages) {
  const said = messages.filter(({ role }) => role === "user").map(({ content }) => content);
  const last = said.at(-1) ?? "";
  const name = said.map((text) => /(?:my name is|i am|i'm)\s+(\w+)/iu.exec(text)?.[1]).findLast((found) => found);
  if (/my name is/iu.test(last)) return `Nice to meet you, ${name}!`;
  if (/what.*my name/iu.test(last)) return name ? `Your name is ${name}.` : "You have not told me your name yet.";
  if (/7 plus 5/u.test(last)) return "7 + 5 = 12.";
  if (/capital of france/iu.test(last)) return "The capital of France is Paris.";
  if (/say nothing that is markdown/iu.test(last)) return "&#8203;\n\n[here]: https://example.com";
  if (/say nothing/iu.test(last)) return "\u200b\n";
  if (/long/iu.test(last)) return Array.from({ length: 12 }, (_, i) => `Part ${i + 1}. ${STORY.slice(0, 138)}`).join("\n\n");
  if (/story/iu.test(last)) return STORY;
  if (/sort|markdown/iu.test(last)) return MARKDOWN;
  if (/evil/iu.test(last)) {
    return '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script> [link](javascript:window.hacked=1) ![pic](https://example.com/a.png)';
  }
  return "I am only a small model, and that is beyond me. Ask me something simple!";
}

/** @param {LoadOptions} options @returns {Promise<Chat>} */
export async function load(options = {}) {
  return makeChat(await pretendLoading(options));
}

/** @param {ModelInfo} loaded @returns {Chat} */
function makeChat(loaded) {
  /** @type {ChatInfo} */
  const facts = {
    ...loaded,
    kernelsPerToken: 68,
    context: info.context,
    fullContext: info.context,
    defaults: { temperature: 0, topP: 1, topK: 0, repetitionPenalty: 1, maxTokens: 256 },
  };
  const { on, emit } = pretendEvents();
  let lost = false;

  return {
    info: facts,
    on,
    async dispose() {
      mock.disposed++;
    },
    generate(messages, options) {
      /** @type {AnswerFigures} */
      const progress = { tokensPerSecond: 0, firstTokenMs: 0, droppedMessages: 0, stopReason: "aborted" };
      return Object.assign(answer(messages, options ?? {}, progress), { progress });
    },
  };

  /** @param {readonly PromptMessage[]} messages @param {GenerateOptions} generateOptions @param {AnswerFigures} progress */
  async function* answer(messages, generateOptions, progress) {
    const { maxTokens = 256, signal } = generateOptions;
    mock.asked.push({ messages, options: { ...generateOptions } });
    let kept = [...messages];
    while (asked.has("small") && kept.length > 1 && kept.reduce((sum, { content }) => sum + content.length, 0) > 200) {
      kept = kept.slice(2);
    }
    progress.droppedMessages = messages.length - kept.length;
    if (asked.has("small") && (kept.at(-1)?.content.length ?? 0) > 200) {
      const excess = { of: messages[0]?.role === "system" ? "both" : "message", tokens: 104 };
      throw Object.assign(fail("context-full", "The message is too long by 104 tokens."), { excess });
    }
    await pause(180, signal);
    if (asked.has("thinking")) await pause(3_600_000, signal);
    if (asked.has("lost-hard") && mock.loads === 1) throw fail("device-lost", "The GPU device was lost: the driver was reset.");
    const words = reply(kept).match(/\s*\S+\s*?/gu) ?? [];
    const start = performance.now();
    for (const [index, text] of words.slice(0, maxTokens).entries()) {
      if (asked.has("broken") && index === 4) throw fail("gpu-error", "Out of bounds access in kernel 12.");
      if ((asked.has("lost") || asked.has("lost-fallback")) && index === 3 && !lost) {
        lost = true;
        emit("device-lost", { reason: "the driver was reset" });
        if (!asked.has("lost-fallback")) await pause(400, signal);
        else {
          await new Promise((resolve) => (mock.continue = () => resolve(undefined)));
          facts.backend = "wasm";
          emit("backend-changed", { from: "webgpu", to: "wasm", reason: "the driver was reset" });
        }
      }
      await pause(12, signal);
      progress.tokensPerSecond = (1000 * (index + 1)) / Math.max(1, performance.now() - start);
      if (index === 0) progress.firstTokenMs = 180;
      yield { text, token: index };
    }
    progress.stopReason = words.length > maxTokens ? "max-tokens" : "end";
  }
}
