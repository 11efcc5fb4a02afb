/** Stop sequences: a text that comes in pieces, cut where one of them begins. */

export class Stops {
  private held = "";
  /** Whether a sequence was found: nothing more comes out. */
  found = false;

  constructor(private readonly sequences: readonly string[]) {}

  /** @returns what of the text so far is certain to lie before any sequence, and was not returned before */
  push(text: string): string {
    if (this.found) return "";
    this.held += text;
    const starts = this.sequences.map((sequence) => this.held.indexOf(sequence)).filter((start) => start >= 0);
    this.found = starts.length > 0;
    return this.take(this.found ? Math.min(...starts) : this.held.length - this.begun());
  }

  /** What was held back because it could have been a beginning; the text is over. */
  end(): string {
    return this.found ? "" : this.take(this.held.length);
  }

  private take(count: number): string {
    const ready = this.held.slice(0, count);
    this.held = this.held.slice(count);
    return ready;
  }

  /** Length of the longest end of the text that begins a sequence. */
  private begun(): number {
    const longest = Math.max(0, ...this.sequences.map(({ length }) => length - 1));
    for (let n = Math.min(longest, this.held.length); n > 0; n--) {
      const end = this.held.slice(-n);
      if (this.sequences.some((sequence) => sequence.startsWith(end))) return n;
    }
    return 0;
  }
}
