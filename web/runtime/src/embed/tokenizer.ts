/** Texts to token ids, as the model was trained to read them: tokenizer.json, special tokens added, long texts cut. */

import type { Tokenizer } from "@huggingface/tokenizers";
import { ControlTokens } from "../control-tokens.js";
import { describe, TinywebError } from "../errors.js";
import type { EmbedSection, Kind } from "./section.js";

type Json = Record<string, unknown>;

export class TextTokenizer {
  private readonly tokenizer: Tokenizer;
  private readonly control: ControlTokens;
  /** Special tokens that end every text. */
  private readonly end: number[];

  /**
   * @param json content of tokenizer.json @param config content of tokenizer_config.json
   * @throws TinywebError "bad-manifest" for files that are not what they must be
   */
  constructor(
    json: Json,
    config: Json,
    private readonly section: EmbedSection,
  ) {
    try {
      this.control = new ControlTokens(json);
      this.tokenizer = this.control.tokenizer({ ...json, truncation: null, padding: null }, config);
      const [bare, whole] = [this.ids("a", false), this.ids("a", true)];
      this.end = whole.slice(whole.indexOf(bare[0] as number) + bare.length);
    } catch (error) {
      throw new TinywebError("bad-manifest", `The tokenizer of this model cannot be used: ${describe(error)}`, error);
    }
  }

  private ids(text: string, special: boolean): number[] {
    return this.tokenizer.encode(text, { add_special_tokens: special }).ids;
  }

  /**
   * Ids of a text of a kind, its prefix in front. @returns at most `max_length` of them, special tokens included; exactly as many
   * where the model wants texts to be filled
   */
  encode(text: string, kind: Kind): number[] {
    const ids = this.all(text, kind);
    const { maxLength, fill } = this.section;
    if (ids.length > maxLength) return [...ids.slice(0, maxLength - this.end.length), ...this.end];
    return fill === null ? ids : [...ids, ...new Array<number>(maxLength - ids.length).fill(fill)];
  }

  /** Tokens of a text before it is cut. */
  count(text: string, kind: Kind): number {
    return this.all(text, kind).length;
  }

  private all(text: string, kind: Kind): number[] {
    const whole = this.control.guard(this.section.prefixes[kind] + text); // a text that names a special token is text
    return this.ids(this.section.lowercase ? whole.toLowerCase() : whole, true);
  }
}
