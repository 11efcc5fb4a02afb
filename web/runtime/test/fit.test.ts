import { beforeEach, describe, expect, it } from "vitest";
import { fitMessages, type Fitted } from "../src/fit.js";
import { ChatTemplate } from "../src/template.js";
import type { Message } from "../src/tokenizer.js";

type Render = (messages: readonly Message[]) => string;

/** Counts what is done. A token for each letter, or for as many letters as it is told. */
class Counting {
  renders = 0;
  letters = 0;
  /** The longest text that was encoded at once. */
  longest = 0;
  onEncode = (): void => undefined;

  constructor(
    readonly render_: Render,
    private readonly size = 1,
  ) {}

  readonly render = (messages: readonly Message[]): string => (this.renders++, this.render_(messages));
  readonly encode = (text: string): number[] => {
    this.letters += text.length;
    this.longest = Math.max(this.longest, text.length);
    this.onEncode();
    return Array.from({ length: Math.ceil(text.length / this.size) }, (_, i) => text.charCodeAt(i * this.size));
  };
}

/** Roles by their first letter and a length: "s3 u2 a4". */
const talk = (text: string): Message[] =>
  text
    .split(" ")
    .filter(Boolean)
    .map((word, i) => ({
      role: { s: "system", u: "user", a: "assistant", t: "tool" }[word[0] as string] as string,
      content: String(i).repeat(Number(word.slice(1))),
    }));
const plain: Render = (messages) => messages.map(({ content }) => content).join("");

/** What is left, as the messages' places, and how many were left out. */
async function fit(text: string, context: number, maxTokens: number): Promise<[string, number]> {
  const { ids, dropped } = await fitMessages(talk(text), context, maxTokens, new Counting(plain));
  return [[...new Set(ids)].map((id) => String.fromCharCode(id)).join(""), dropped];
}

/** The rule, as it is said: one turn after the other is left out until the rest fits. */
function rule(messages: readonly Message[], context: number, maxTokens: number, tokenizer: Pick<Counting, "render" | "encode">): Fitted {
  const rest = messages.findIndex(({ role }) => role !== "system");
  const first = rest < 0 ? messages.length : rest;
  const reserve = Math.min(maxTokens, Math.floor(context / 2));
  for (let start = first; ; ) {
    const ids = tokenizer.encode(tokenizer.render([...messages.slice(0, first), ...messages.slice(start)]));
    if (ids.length + reserve <= context) return { ids, dropped: start - first };
    if (start >= messages.length - 1) {
      if (ids.length + Math.min(reserve, 16) <= context) return { ids, dropped: start - first };
      throw new Error("too long");
    }
    start += 1;
    while (start < messages.length - 1 && messages[start]?.role !== "user") start += 1;
  }
}

let seed = 0;
beforeEach(() => void (seed = 12345));
/** 0 … below - 1 */
function random(below: number): number {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  return (seed >>> 8) % below;
}

describe("a conversation", () => {
  it.each<[string, number, number, string, number]>([
    ["s5 u5 a5 u5", 100, 10, "0123", 0], // all fits
    ["s5 u5 a5 u5", 30, 10, "0123", 0], // exactly
    ["s5 u5 a5 u5", 29, 10, "03", 2], // a turn is a question and its answer
    ["s5 u5 a5 u5 a5 u5", 29, 4, "0345", 2],
    ["s5 s5 u5 a5 u5", 21, 4, "014", 2], // all system messages at the start stay
    ["u5 a5 s5 u5", 16, 4, "3", 3], // not those in between
    ["u5 a5 t5 u5 a5 u5", 20, 4, "345", 3], // to where the user speaks again
    ["u5 u5 u5", 14, 4, "12", 1],
    ["a5 a5 u5", 11, 4, "2", 2],
    ["s5", 10, 4, "0", 0],
    ["s5 s5", 10, 0, "01", 0],
  ])("%s in %i with room for %i", async (text, context, room, left, dropped) => {
    expect(await fit(text, context, room)).toEqual([left, dropped]);
  });

  it("keeps no more than half of the context free for the answer", async () => {
    expect(await fit("u20 a10 u20", 100, 1000)).toEqual(["012", 0]);
    expect(await fit("u20 a10 u21", 100, 1000)).toEqual(["2", 2]);
    expect(await fit("u20 a10 u20", 101, 1000)).toEqual(["012", 0]); // half of it is 50
  });

  it("takes a shorter answer where nothing else can go, but no less than sixteen tokens", async () => {
    expect(await fit("u9 a9 u84", 100, 40)).toEqual(["2", 2]);
    await expect(fit("u9 a9 u85", 100, 40)).rejects.toMatchObject({ code: "context-full" });
    expect(await fit("u95", 100, 5)).toEqual(["0", 0]); // a short one was asked for
    await expect(fit("u96", 100, 5)).rejects.toMatchObject({ code: "context-full" });
  });
});

describe("what is too long", () => {
  const ends = "and this model reads at most 100 including its answer, for which 16 are kept.";
  it.each<[string, string, object]>([
    [
      "u9 a9 u85",
      `The message is too long by 1 tokens: the prompt takes 85 (85 the message), ${ends} Shorten it.`,
      { of: "message", tokens: 1 },
    ],
    [
      "s90 u2",
      `The system prompt is too long by 8 tokens: the prompt takes 92 (90 the system prompt, 2 the message), ${ends} Shorten it.`,
      { of: "system", tokens: 8 },
    ],
    [
      "s50 s40 u9 a9 u2",
      `The system prompt is too long by 8 tokens: the prompt takes 92 (90 the system prompt, 2 the message), ${ends} Shorten it.`,
      { of: "system", tokens: 8 },
    ],
    [
      "s2 u90",
      `The message is too long by 8 tokens: the prompt takes 92 (2 the system prompt, 90 the message), ${ends} Shorten it.`,
      { of: "message", tokens: 8 },
    ],
    [
      "s8 u84",
      `The system prompt and the message together are too long by 8 tokens: the prompt takes 92 (8 the system prompt, 84 the message), ${ends} Shorten them.`,
      { of: "both", tokens: 8 },
    ],
    [
      "s90 u90",
      `The system prompt and the message together are too long by 96 tokens: the prompt takes 180 (90 the system prompt, 90 the message), ${ends} Shorten them.`,
      { of: "both", tokens: 96 },
    ],
    [
      "s50 s50",
      `The system prompt is too long by 16 tokens: the prompt takes 100 (100 the system prompt), ${ends} Shorten it.`,
      { of: "system", tokens: 16 },
    ],
  ])("%s", async (text, message, excess) => {
    await expect(fit(text, 100, 40)).rejects.toMatchObject({ code: "context-full", message, excess });
  });

  it("is told without encoding it at once, however long it is", async () => {
    const tokenizer = new Counting(plain);
    await expect(fitMessages(talk("s3 u1000000"), 100, 40, tokenizer)).rejects.toMatchObject({
      message: `The message is too long by about 999919 tokens: the prompt takes 1000003 (3 the system prompt, 1000000 the message), ${ends} Shorten it.`,
      excess: { of: "message", tokens: 999919 },
    });
    expect(tokenizer.longest).toBe(16_384);
    expect(tokenizer.letters).toBeLessThan(1_040_000);
  });
});

/** Templates, from plain ones to those that look at all messages. */
const TEMPLATES: Record<string, Render> = {
  plain,
  chatml: jinja("{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>\n{% endfor %}<|assistant|>"),
  // the system message goes into the first question
  folding:
    jinja(`{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0].content %}{% else %}{% set rest = messages %}{% set system = '' %}{% endif %}
{% for m in rest %}{% if loop.first and m.role == 'user' %}[{{ system }}]{% endif %}{{ m.role }}: {{ m.content }};{% endfor %}`),
  // says more to short conversations
  greeting: jinja(
    "{% if messages | length < 4 %}This conversation has just begun.{% endif %}{% for m in messages %}{{ m.content }}|{% endfor %}",
  ),
  // leaves out most of the answers before the last
  forgetful: jinja(
    "{% for m in messages %}{% if m.role == 'assistant' and not loop.last %}{{ m.content[:2] }}{% else %}{{ m.content }}{% endif %}|{% endfor %}",
  ),
  // refuses two questions in a row, and answers at the start
  strict: jinja(`{% set ns = namespace(before='assistant') %}{% for m in messages %}{% if m.role != 'system' %}
{% if m.role == ns.before %}{{ raise_exception('Roles must alternate.') }}{% endif %}{% set ns.before = m.role %}{% endif %}{{ m.content }}|{% endfor %}`),
  // refuses short conversations
  long: (messages) => {
    if (messages.length < 2) throw new Error("Say more.");
    return plain(messages);
  },
};

function jinja(source: string): Render {
  const template = new ChatTemplate(source);
  return (messages) => template.render({ messages: messages.map((message) => ({ ...message })) });
}

async function outcome(run: () => Fitted | Promise<Fitted>): Promise<unknown> {
  try {
    return await run();
  } catch (error) {
    return (error as { code?: string }).code === "context-full" ? "too long" : (error as Error).message;
  }
}

describe.each(Object.entries(TEMPLATES))("the %s template", (name, render) => {
  it("keeps what the rule keeps", { timeout: 60_000 }, async () => {
    const seen = { dropped: 0, whole: 0, refused: 0 };
    for (let round = 0; round < 150; round++) {
      const count = 1 + random(round % 3 === 0 ? 60 : 8);
      const orderly = random(3) > 0;
      const words = Array.from(
        { length: count },
        (_, i) => `${orderly ? "ua"[i % 2] : "uuaat"[random(5)]}${random(4) === 0 ? random(120) : random(9)}`,
      );
      for (let i = random(3); i > 0; i--) words.unshift(`s${random(12)}`);
      const messages = talk(words.join(" "));
      const [context, maxTokens, size] = [20 + random(200), 1 + random(100), 1 + random(3)];
      const wanted = await outcome(() => rule(messages, context, maxTokens, new Counting(render, size)));
      const got = await outcome(() => fitMessages(messages, context, maxTokens, new Counting(render, size)));
      expect(got, `${name}: ${words.join(" ")} in ${context} for ${maxTokens}`).toEqual(wanted);
      seen[typeof wanted === "string" ? "refused" : (wanted as Fitted).dropped > 0 ? "dropped" : "whole"] += 1;
    }
    for (const times of Object.values(seen)) expect(times).toBeGreaterThan(2);
  });
});

it("a template whose prompts do not grow with their messages: what is kept fits, and with one turn more it does not", async () => {
  // odd numbers of messages take much more
  const render: Render = (messages) => plain(messages) + (messages.length % 2 ? "x".repeat(40) : "");
  for (let round = 0; round < 200; round++) {
    const messages = talk(Array.from({ length: 4 + random(40) }, () => `u${random(12)}`).join(" "));
    const context = 60 + random(60);
    const { ids, dropped } = await fitMessages(messages, context, 10, new Counting(render));
    expect(render(messages.slice(dropped))).toHaveLength(ids.length);
    expect(ids.length + 10).toBeLessThanOrEqual(context);
    if (dropped > 0) expect(render(messages.slice(dropped - 1)).length + 10).toBeGreaterThan(context);
  }
});

describe("a long conversation", () => {
  const long = (turns: number): Message[] => talk(`s5${" u30 a50".repeat(turns)} u9`);
  const work = async (turns: number): Promise<Counting> => {
    const tokenizer = new Counting(plain, 4);
    const { ids } = await fitMessages(long(turns), 512, 256, tokenizer);
    expect(ids.length).toBeGreaterThan(200);
    return tokenizer;
  };

  it("takes no more encoding than the context asks for, however long it is", async () => {
    const few = await work(1000);
    const many = await work(4000);
    expect(many.letters).toBeLessThanOrEqual(few.letters + 2 * 16_384);
    expect(many.letters).toBeLessThan(40_000); // of 360 000
    expect(many.longest).toBeLessThanOrEqual(16_384);
    expect(many.renders).toBeLessThan(6); // the guess is near
  });

  it("takes a number of prompts that grows with the logarithm of the turns, also where lengths mislead", async () => {
    // what is old is short, what is new is long, and the template leaves out half of it
    const messages = talk(`${Array.from({ length: 2000 }, (_, i) => `u${Math.floor(i / 100)} a${i % 50}`).join(" ")} u9`);
    const tokenizer = new Counting(TEMPLATES["forgetful"] as Render);
    const wanted = rule(messages.slice(3900), 512, 100, new Counting(TEMPLATES["forgetful"] as Render));
    const got = await fitMessages(messages, 512, 100, tokenizer);
    expect(got.ids).toEqual(wanted.ids);
    expect(tokenizer.renders).toBeLessThan(2 * Math.log2(2000) + 4);
  });

  it("is encoded once where it fits", async () => {
    const tokenizer = new Counting(plain, 4);
    await fitMessages(talk("s5 u30 a50 u9"), 512, 256, tokenizer);
    expect([tokenizer.renders, tokenizer.letters]).toEqual([1, 94]);
  });

  it("lets others in meanwhile, and stops by its signal", async () => {
    for (const messages of [long(4000), talk("u1000000"), talk("u9 a1000000 u9")]) {
      const controller = new AbortController();
      const tokenizer = new Counting(plain, 4);
      tokenizer.onEncode = () => {
        tokenizer.onEncode = () => undefined;
        setTimeout(() => controller.abort()); // heard only where the event loop is
      };
      await expect(fitMessages(messages, 512, 256, tokenizer, controller.signal)).rejects.toMatchObject({ code: "aborted" });
      expect(tokenizer.letters).toBeLessThanOrEqual(3 * 16_384);
    }
  });
});
