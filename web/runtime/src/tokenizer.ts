/** Conversations to token ids: the model's own chat template and tokenizer. */

import type { Tokenizer } from "@huggingface/tokenizers";
import { badArgument } from "./arguments.js";
import { ControlTokens } from "./control-tokens.js";
import { createDetokenizer, type Detokenizer } from "./detokenizer.js";
import { describe, TinywebError } from "./errors.js";
import { ChatTemplate } from "./template.js";

export interface Message {
  role: "system" | "user" | "assistant" | (string & {});
  content: string;
}

type Json = Record<string, unknown>;

const SPECIAL = ["bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token"];

export class ChatTokenizer {
  private readonly tokenizer: Tokenizer;
  private readonly control: ControlTokens;
  private readonly template: ChatTemplate | undefined;
  private readonly special: Json = {};
  private readonly byteLevel: boolean;

  /**
   * @param json content of tokenizer.json @param config content of tokenizer_config.json @param template Jinja source; without one the
   *   messages are pieces of one text, which `begin` goes before
   * @throws TinywebError "bad-manifest" for files that are not what they must be
   */
  constructor(
    json: Json,
    config: Json,
    template?: string,
    private readonly begin: readonly number[] = [],
  ) {
    try {
      this.control = new ControlTokens(json);
      this.tokenizer = this.control.tokenizer(json, config);
      this.template = template === undefined ? undefined : new ChatTemplate(template);
    } catch (error) {
      throw new TinywebError("bad-manifest", `The tokenizer or chat template of this model cannot be used: ${describe(error)}`, error);
    }
    for (const name of SPECIAL) {
      const token = config[name];
      // Older configurations hold the token's text in an object.
      const text = typeof token === "object" && token !== null ? (token as Json)["content"] : token;
      if (typeof text === "string") this.special[name] = text;
    }
    this.byteLevel = JSON.stringify(json["decoder"] ?? null).includes('"ByteLevel"');
  }

  /** The conversation as the model's template spells it, ready for the assistant's answer; look-alikes of control tokens are marked. */
  render(messages: readonly Message[]): string {
    const guarded = messages.map(({ role, content }) => ({ role: this.control.guard(role), content: this.control.guard(content) }));
    if (this.template === undefined) return guarded.map(({ content }) => content).join("");
    try {
      return this.template.render({ ...this.special, messages: guarded, add_generation_prompt: true });
    } catch (error) {
      throw badArgument(`The chat template refused these messages: ${describe(error)}`, error);
    }
  }

  /** Ids of what `render` gives. */
  encode(text: string): number[] {
    return [...this.begin, ...this.tokenizer.encode(text, { add_special_tokens: false }).ids];
  }

  encodeChat(messages: readonly Message[]): number[] {
    return this.encode(this.render(messages));
  }

  detokenizer(): Detokenizer {
    return createDetokenizer(this.tokenizer, this.byteLevel);
  }
}
