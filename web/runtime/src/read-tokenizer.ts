/** A tokenizer.json without objects for its words. */

import { JsonReader } from "./json-reader.js";
import { release } from "./landing.js";
import { Pieces } from "./pieces.js";
import { Merges, type Part, Vocabulary } from "./vocabulary.js";

type Json = Record<string, unknown>;

/** Models whose words are an object of ids. */
const KINDS = ["BPE", "WordPiece"];
const UNIGRAM = "Unigram";
const BRACKET = 0x5b;
/**
 * Content of a tokenizer.json, whose `model.vocab` is a `Vocabulary` and whose `model.merges` are `Merges`, where the model is a BPE or a WordPiece, and `Pieces` where it is a Unigram.
 * @param bytes are given up: browsers would keep their memory for a while
 * @throws SyntaxError
 */
export function readTokenizer(bytes: Uint8Array<ArrayBuffer>): unknown {
  const content = read(bytes);
  release(bytes);
  return content;
}

function read(bytes: Uint8Array): unknown {
  const decoder = new TextDecoder();
  const file = new JsonReader(bytes);
  const parts: Record<string, Part> = {};
  file.each(() => {
    if (file.string !== "model") return file.skip();
    file.each(() => {
      const key = file.string;
      const part = { begin: file.at, end: 0, count: 0, names: 0 };
      const list = file.peek() === BRACKET;
      file.each(() => {
        part.count += 1;
        const name = file.end - file.begin; // of a list the text within each entry
        file.skip();
        part.names += list ? file.end - file.begin : name;
      });
      part.end = file.at;
      if (key === "vocab" || key === "merges") parts[key] = part;
    });
  });
  // the rest, with nothing in their places
  let [text, at] = ["", 0];
  for (const { begin, end } of Object.values(parts).sort((a, b) => a.begin - b.begin)) {
    text += `${decoder.decode(bytes.subarray(at, begin))}${bytes[begin] === 0x7b ? "{}" : "[]"}`;
    at = end;
  }
  const content = JSON.parse(text + decoder.decode(bytes.subarray(at))) as Json | null;
  const model = content?.["model"] as Json | undefined;
  const { vocab, merges } = parts;
  if (vocab && model?.["type"] === UNIGRAM && bytes[vocab.begin] === BRACKET) {
    model["vocab"] = new Pieces(bytes, vocab);
    return content;
  }
  if (!vocab || !model || !KINDS.includes(model["type"] as string)) return JSON.parse(decoder.decode(bytes));
  const vocabulary = new Vocabulary(bytes, vocab);
  model["vocab"] = vocabulary;
  if (merges) model["merges"] = new Merges(bytes, merges, vocabulary);
  return content;
}
