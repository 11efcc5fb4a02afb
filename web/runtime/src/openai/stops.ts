/** Stop sequences: a text that comes in pieces, cut where one of them begins. */

export class Stops {
  private held = "";
  /** Whether a sequence was found: nothing more comes out. */
  found = false;

  constructor(private readonly sequences: readonly string[]) {}

  /** @returns what of the text so far is certain to lie before any sequence, and was not returned before */
  push(text: string): string {
    this.held += text;
    const starts = this.sequences.map((sequence) => this.held.indexOf(sequence)).filter((start) => start >= 0);
    this.found = starts.length > 0;
    return this.take(this.found ? Math.min(...starts) : this.certain());
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

  /** Length of the text before the first place where a sequence may begin. */
  private certain(): number {
    let at = 0;
    while (at < this.held.length && !this.sequences.some((sequence) => sequence.startsWith(this.held.slice(at)))) at++;
    return at;
  }
}
