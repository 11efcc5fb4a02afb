import { describe, expect, it, vi } from "vitest";
import { Store } from "../../src";

class Counter extends Store<{ count: number; name: string }> {
  constructor() {
    super({ count: 0, name: "one" });
  }

  add(): void {
    this.change({ count: this.state.count + 1 });
  }
}

describe("a store", () => {
  it("replaces its state and tells of it until told to end", () => {
    const counter = new Counter();
    const before = counter.state;
    const listener = vi.fn(() => counter.state.count);
    const end = counter.subscribe(listener);
    counter.add();
    expect(before).toEqual({ count: 0, name: "one" });
    expect(counter.state).toEqual({ count: 1, name: "one" });
    end();
    counter.add();
    expect(listener.mock.results).toEqual([{ type: "return", value: 1 }]);
  });

  it("lets a listener end itself and others while they are told", () => {
    const counter = new Counter();
    const ends = [(): void => undefined];
    const second = vi.fn();
    counter.subscribe(() => ends.forEach((end) => end()));
    ends.push(counter.subscribe(second));
    counter.add();
    expect(second).not.toHaveBeenCalled();
  });
});
