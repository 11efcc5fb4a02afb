/**
 * Token ids to text as they arrive. A token may end inside a character: such bytes are held back until the rest comes.
 */

import { ByteLevelDecoder, type Tokenizer } from "@huggingface/tokenizers";

export interface Detokenizer {
  /** Text that `token` completes; may be empty. */
  push(token: number): string;
  /** What was held back, at the end of an answer; broken characters become U+FFFD. */
  end(): string;
}

/** @internal @param byteLevel whether the vocabulary spells bytes as the GPT-2 alphabet does */
export function createDetokenizer(tokenizer: Tokenizer, byteLevel: boolean): Detokenizer {
  return byteLevel ? new ByteLevelDetokenizer(tokenizer) : new PrefixDetokenizer(tokenizer);
}

/** The GPT-2 alphabet, in which every byte is a visible character. */
const ALPHABET = new ByteLevelDecoder({ type: "ByteLevel" }).byte_decoder;

class ByteLevelDetokenizer implements Detokenizer {
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  private readonly added: ReturnType<Tokenizer["get_added_tokens_decoder"]>;

  constructor(private readonly tokenizer: Tokenizer) {
    this.added = tokenizer.get_added_tokens_decoder();
  }

  push(token: number): string {
    return this.decoder.decode(this.bytes(token), { stream: true });
  }

  end(): string {
    return this.decoder.decode();
  }

  private bytes(token: number): Uint8Array<ArrayBuffer> {
    const added = this.added.get(token);
    if (added) return added.special ? new Uint8Array() : new TextEncoder().encode(added.content);
    const characters = Array.from(this.tokenizer.id_to_token(token) ?? "");
    return Uint8Array.from(characters.flatMap((c) => ALPHABET[c] ?? [...new TextEncoder().encode(c)]));
  }
}

/** For other vocabularies: decodes the words of the last few tokens and passes on what they add. */
class PrefixDetokenizer implements Detokenizer {
  private ids: number[] = [];
  private shown = "";

  constructor(private readonly tokenizer: Tokenizer) {}

  push(token: number): string {
    this.ids.push(token);
    const text = this.decode();
    if (text.endsWith("\ufffd")) return "";
    const added = text.slice(this.shown.length);
    this.shown = text;
    if (added.endsWith("\n")) {
      // A line's end is a safe place to forget what came before it.
      this.ids = [token];
      this.shown = this.decode();
    }
    return added;
  }

  end(): string {
    const added = this.decode().slice(this.shown.length);
    this.ids = [];
    this.shown = "";
    return added;
  }

  private decode(): string {
    return this.ids.length === 0 ? "" : this.tokenizer.decode(this.ids, { skip_special_tokens: true });
  }
}
