/** What components draw: a value that is replaced, never altered, and who is told of it. */
export class Store<State extends object> {
  #state: State;
  readonly #listeners = new Set<() => void>();

  constructor(state: State) {
    this.#state = state;
  }

  get state(): State {
    return this.#state;
  }

  /** Calls back after every change; returns the function that ends it. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  protected change(change: Partial<State>): void {
    this.#state = { ...this.#state, ...change };
    this.changed();
  }

  /** Tells the listeners: also of what `state` is derived from. */
  protected changed(): void {
    for (const listener of this.#listeners) listener();
  }
}
