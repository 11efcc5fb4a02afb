/** JSON as bytes, from one value to the next: what is large need not become objects. */

const [QUOTE, BACKSLASH, COLON, COMMA, DIGIT] = [0x22, 0x5c, 0x3a, 0x2c, 0x30];
/** What closes { and [. */
const CLOSES = new Map([
  [0x7b, 0x7d],
  [0x5b, 0x5d],
]);

/** What stands behind \\, but for u, and what it means. */
const ESCAPES = new Map(Array.from('"\\/bfnrt', (letter, i) => [letter.charCodeAt(0), '"\\/\b\f\n\r\t'.charCodeAt(i)]));
/** What stands behind a number, true, false or null. */
const ENDS = new Set([0x20, 0x0a, 0x0d, 0x09, COMMA, ...CLOSES.values(), undefined]);

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/** Calls must follow the text: a value that `each` comes to is read, or skipped. */
export class JsonReader {
  at = 0;
  source: Uint8Array;
  begin = 0;
  end = 0;
  /** Where texts are put together that have escapes: those of a vocabulary are many. */
  private scratch = new Uint8Array(64);
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  private readonly encoder = new TextEncoder();

  constructor(private readonly json: Uint8Array) {
    this.source = json;
  }

  /** The next byte that is no white space; the reader stands before it. @throws SyntaxError where the text ends */
  peek(): number {
    const { json } = this;
    for (;;) {
      const byte = json[this.at];
      if (byte === undefined) this.fail(this.at);
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return byte;
      this.at += 1;
    }
  }

  private take(byte: number): void {
    if (this.peek() !== byte) this.fail(this.at);
    this.at += 1;
  }

  /** Comes to the end of a text, which then is `source` from `begin` to `end`, in UTF-8: no object is made of it. */
  text(): void {
    const { json } = this;
    this.take(QUOTE);
    let { at } = this;
    this.source = json;
    this.begin = at;
    let plain = true;
    for (let byte = json[at]; byte !== QUOTE; byte = json[++at]) {
      if (byte === BACKSLASH) {
        plain = false;
        at += 1;
      }
      if (at >= json.length) this.fail(at);
    }
    this.end = at;
    this.at = at + 1;
    if (!plain) this.unescape();
  }

  private unescape(): void {
    const { json, begin, end } = this;
    if (this.scratch.length < end - begin) this.scratch = new Uint8Array(2 * (end - begin));
    this.source = this.scratch;
    this.begin = 0;
    this.end = 0;
    for (let i = begin; i < end; i++) {
      let byte = json[i];
      if (byte === BACKSLASH) byte = ESCAPES.get(json[++i] as number);
      if (byte === undefined) {
        this.source = this.encoder.encode(JSON.parse(`"${this.decoder.decode(json.subarray(begin, end))}"`) as string);
        this.end = this.source.length;
        return;
      }
      this.source[this.end++] = byte;
    }
  }

  /** What was read last. */
  get string(): string {
    return this.decoder.decode(this.source.subarray(this.begin, this.end));
  }

  /** An integer that is not negative, and not larger than ids are. */
  integer(): number {
    this.peek();
    const begin = this.at;
    let value = 0;
    while (!ENDS.has(this.json[this.at])) {
      const digit = (this.json[this.at] as number) - DIGIT;
      if (digit < 0 || digit > 9 || this.at - begin > 8) this.fail(this.at);
      value = 10 * value + digit;
      this.at += 1;
    }
    if (this.at === begin) this.fail(begin);
    return value;
  }

  /** Any finite number. */
  number(): number {
    this.peek();
    const begin = this.at;
    while (!ENDS.has(this.json[this.at])) this.at++;
    const text = this.decoder.decode(this.json.subarray(begin, this.at));
    if (!NUMBER.test(text) || !Number.isFinite(Number(text))) this.fail(begin);
    return Number(text);
  }

  private fail(at: number): never {
    const byte = this.json[at];
    throw new SyntaxError(byte === undefined ? "it ends too early" : `unexpected '${String.fromCharCode(byte)}' at byte ${at}`);
  }

  /** Behind a value. */
  skip(): void {
    const first = this.peek();
    if (first === QUOTE) this.text();
    else if (CLOSES.has(first)) this.each(this.skipped);
    else {
      const begin = this.at;
      while (!ENDS.has(this.json[this.at])) this.at++;
      if (this.at === begin) this.fail(begin);
    }
  }

  private readonly skipped = (): void => this.skip();

  /** Comes to each value of an object, whose name then is the text that was read last, or of a list; any other value is skipped. */
  each(visit: () => void): void {
    const first = this.peek();
    const close = CLOSES.get(first);
    if (close === undefined) {
      this.skip();
      return;
    }
    this.at += 1;
    for (let more = this.peek() !== close; more; ) {
      if (first === 0x7b) {
        this.text();
        this.take(COLON);
      }
      this.peek();
      visit();
      more = this.peek() === COMMA;
      if (more) this.at += 1;
    }
    this.take(close);
  }
}
