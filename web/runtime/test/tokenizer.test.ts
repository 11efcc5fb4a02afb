import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ChatTokenizer, type Message } from "../src/tokenizer.js";
import { fakeBundle, promptIds } from "./fake-bundle.js";

const model = new URL("../../../assets/models/tinychat-7m/", import.meta.url);
const json = (file: string): any => JSON.parse(readFileSync(new URL(file, model), "utf8"));
const config = json("tokenizer_config.json");
const tokenizer = new ChatTokenizer(json("tokenizer.json"), config, config.chat_template);

interface Golden {
  id: string;
  messages: Message[];
  prompt_text: string;
  prompt_ids: number[];
  output_ids: number[];
  output_text: string;
}
const golden: Golden[] = json("golden.json").items;

describe("tinychat-7m", () => {
  it("has golden answers", () => {
    expect(golden.length).toBeGreaterThan(5);
  });

  it.each(golden)("spells prompt $id as transformers does", (item) => {
    expect(tokenizer.render(item.messages)).toBe(item.prompt_text);
    expect(tokenizer.encodeChat(item.messages)).toEqual(item.prompt_ids);
  });

  it.each(golden)("spells answer $id as transformers does", (item) => {
    const detokenizer = tokenizer.detokenizer();
    expect(item.output_ids.map((id) => detokenizer.push(id)).join("") + detokenizer.end()).toBe(item.output_text);
  });

  it.each(["naïve café — ½ €", "日本語のテキスト", "👩‍👩‍👧‍👦 family", "\u0000\u0007 control", "\ufeffmark", "a\r\n\r\n  b"])(
    "brings back %j",
    (text) => {
      const detokenizer = tokenizer.detokenizer();
      const pieces = tokenizer.encode(text).map((id) => detokenizer.push(id));
      expect(pieces.join("") + detokenizer.end()).toBe(text);
      expect(pieces.join("")).not.toContain("\ufffd");
    },
  );

  it("does with a tokenizer.json without the parts that may be absent", () => {
    const { post_processor: _absent, normalizer: _none, ...rest } = json("tokenizer.json");
    expect(new ChatTokenizer(rest, config, config.chat_template).encode("Hello there")).toEqual(tokenizer.encode("Hello there"));
  });

  it("adds no special tokens by itself", () => {
    expect(tokenizer.encode("Hello")).not.toContain(config.bos_token_id ?? 0);
  });
});

describe("streaming text", () => {
  const { files } = fakeBundle();
  const text = (file: string): string => new TextDecoder().decode(files.get(file));
  const fake = new ChatTokenizer(
    JSON.parse(text("tokenizer.json")),
    JSON.parse(text("tokenizer_config.json")),
    text("chat_template.jinja"),
  );

  it("holds back an incomplete character until it is whole", () => {
    const detokenizer = fake.detokenizer();
    expect([0x41, 0xe2, 0x82, 0xac, 0x42].map((byte) => detokenizer.push(byte))).toEqual(["A", "", "", "€", "B"]);
  });

  it("shows what was left incomplete at the end", () => {
    const detokenizer = fake.detokenizer();
    expect(detokenizer.push(0xf0) + detokenizer.push(0x9f)).toBe("");
    expect(detokenizer.end()).toBe("\ufffd");
  });

  it("leaves special tokens out", () => {
    const detokenizer = fake.detokenizer();
    expect([0x41, 257, 0x42].map((id) => detokenizer.push(id))).toEqual(["A", "", "B"]);
  });

  it("reads special tokens that are spelled out", () => {
    const messages = [{ role: "user", content: "hé" }];
    expect(fake.encodeChat(messages)).toEqual(promptIds(messages));
  });
});

describe("vocabularies of another kind", () => {
  // Words with "▁" for spaces and <0x..> for bytes, as Llama 2 has them.
  const words = [
    "<unk>",
    "<s>",
    "</s>",
    ...Array.from({ length: 256 }, (_, b) => `<0x${b.toString(16).toUpperCase().padStart(2, "0")}>`),
    "▁",
    "▁Hello",
    "▁world",
    "\n",
  ];
  const spm = new ChatTokenizer(
    {
      version: "1.0",
      added_tokens: ["<unk>", "<s>", "</s>"].map((content, id) => ({
        id,
        content,
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: true,
      })),
      normalizer: {
        type: "Sequence",
        normalizers: [
          { type: "Prepend", prepend: "▁" },
          { type: "Replace", pattern: { String: " " }, content: "▁" },
        ],
      },
      pre_tokenizer: null,
      post_processor: null,
      decoder: {
        type: "Sequence",
        decoders: [
          { type: "Replace", pattern: { String: "▁" }, content: " " },
          { type: "ByteFallback" },
          { type: "Fuse" },
          { type: "Strip", content: " ", start: 1, stop: 0 },
        ],
      },
      model: {
        type: "BPE",
        unk_token: "<unk>",
        fuse_unk: true,
        byte_fallback: true,
        vocab: Object.fromEntries(words.map((word, id) => [word, id])),
        merges: [],
      },
    },
    { bos_token: "<s>", eos_token: "</s>", unk_token: "<unk>" },
    "{{ messages[0].content }}",
  );
  const id = (word: string): number => words.indexOf(word);

  it("streams words with their spaces, and bytes as whole characters", () => {
    const detokenizer = spm.detokenizer();
    const ids = [id("▁Hello"), id("▁world"), id("<0xE2>"), id("<0x82>"), id("<0xAC>"), id("▁world"), id("\n"), id("▁world"), id("</s>")];
    const pieces = ids.map((token) => detokenizer.push(token));
    expect(pieces.slice(0, 2)).toEqual(["Hello", " world"]);
    expect(pieces.join("") + detokenizer.end()).toBe("Hello world€ world\n world");
  });
});

it("names a broken tokenizer or template", () => {
  const refused = (words: RegExp): unknown =>
    expect.objectContaining({ code: "bad-manifest", message: expect.stringMatching(words), cause: expect.any(Error) });
  expect(() => new ChatTokenizer({}, {}, "")).toThrow(refused(/^The tokenizer or chat template of this model cannot be used: ./));
  expect(() => new ChatTokenizer(json("tokenizer.json"), config, "{% for %}")).toThrow(
    refused(/^The tokenizer or chat template of this model cannot be used: ./),
  );
});

describe("what a template may say", () => {
  const make = (template: string, change: object = {}, special: object = {}): ChatTokenizer =>
    new ChatTokenizer({ ...json("tokenizer.json"), ...change }, { ...config, ...special }, template);

  it("are special tokens, spelled out or in an object, and nothing where the model has none", () => {
    const t = make(
      "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}|{{ unk_token is defined }}|{{ sep_token is defined }}",
      {},
      {
        bos_token: "<b>",
        eos_token: { content: "<e>", lstrip: false },
        pad_token: null,
        unk_token: 5,
        sep_token: { content: 5 },
      },
    );
    expect(t.render([])).toBe("<b>|<e>|false|false|false");
  });

  it("are the messages, and that an answer is wanted", () => {
    const t = make("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{{ add_generation_prompt }}");
    expect(
      t.render([
        { role: "user", content: "a" },
        { role: "assistant", content: "b" },
      ]),
    ).toBe("user:a;assistant:b;true");
  });

  it("refuses messages in a sentence", () => {
    expect(() => make("{{ raise_exception('no') }}").render([])).toThrow(
      expect.objectContaining({
        code: "bad-argument",
        message: "The chat template refused these messages: no",
        cause: expect.any(Error),
      }),
    );
  });

  it("bytes are told by a decoder anywhere in the file, none by a file without decoder", () => {
    const text = "one two é";
    const said = (t: ChatTokenizer): string => {
      const detokenizer = t.detokenizer();
      return (
        t
          .encode(text)
          .map((id) => detokenizer.push(id))
          .join("") + detokenizer.end()
      );
    };
    const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
    expect(said(make("", { decoder: bytes }))).toBe(text);
    expect(said(make("", { decoder: { type: "Sequence", decoders: [bytes] } }))).toBe(text);
    const { decoder: _, ...without } = json("tokenizer.json");
    for (const t of [make("", { decoder: null }), make("", { decoder: { type: "Fuse" } }), new ChatTokenizer(without, config, "")]) {
      expect(said(t)).toContain("Ġ"); // as the vocabulary writes a space
    }
  });
});

it("reports what a template refuses, and bounds its loops", () => {
  const make = (template: string): ChatTokenizer => new ChatTokenizer(json("tokenizer.json"), config, template);
  expect(() => make("{{ raise_exception('Roles must alternate') }}").render([])).toThrow(/Roles must alternate/);
  expect(() => make("{% for i in range(1000000000) %}x{% endfor %}").render([])).toThrow(/range/);
  expect(make("{% for i in range(2, 8, 3) %}{{ i }},{% endfor %}{{ strftime_now('%Y') }}").render([])).toBe(
    `2,5,${new Date().getFullYear()}`,
  );
});
