import { afterEach, describe, expect, it, vi } from "vitest";
import { ChatTemplate } from "../src/template.js";

const render = (source: string, variables: Record<string, unknown> = {}): string => new ChatTemplate(source).render(variables);

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

describe("a chat template", () => {
  it("takes away the line of a block, as transformers does", () => {
    expect(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n")).toBe("a\n  b\nc");
  });

  it("knows Python's words and Jinja's for true, false and none", () => {
    expect(render("{% for x in [true, True, false, False, none, None] %}{{ 1 if x else (2 if x is none else 0) }}{% endfor %}")).toBe(
      "110022",
    );
    expect(render("{{ [true, True, false, False, none, None] | tojson }}")).toBe("[true, true, false, false, null, null]");
  });

  it("sees the variables that it is given, also one that hides a global", () => {
    expect(render("{{ word }} {{ None }}", { word: "x", None: "mine" })).toBe("x mine");
  });

  it("counts as Python's range does", () => {
    const range = (given: string): string => render(`{% for i in range(${given}) %}{{ i }} {% endfor %}`).trim();
    expect(["3", "0", "-2", "2, 5", "5, 2", "2, 9, 3", "2, 8, 3", "9, 2, -3", "2, 9, -1"].map(range)).toEqual([
      "0 1 2",
      "",
      "",
      "2 3 4",
      "",
      "2 5 8",
      "2 5",
      "9 6 3",
      "",
    ]);
  });

  it("fills no memory with a range", () => {
    expect(render("{{ range(100000) | length }}")).toBe("100000");
    expect(() => render("{{ range(100001) }}")).toThrow("range of 100001 items");
    expect(() => render("{{ range(0, 5, 0) }}")).toThrow("range of Infinity items");
    expect(() => render("{{ range(5, 5, 0) }}")).toThrow("range of NaN items");
  });

  it("may refuse in its own words", () => {
    expect(() => render("{{ raise_exception('Roles must alternate') }}")).toThrow(/^Roles must alternate$/);
  });

  it("tells the local time", () => {
    vi.useFakeTimers({ toFake: ["Date"], now: Date.UTC(2031, 6, 15, 20, 41, 39) });
    vi.spyOn(Date.prototype, "getTimezoneOffset").mockReturnValue(-330); // India
    const words = vi
      .spyOn(Date.prototype, "toLocaleString")
      .mockImplementation((_, options) => (options?.month === "short" ? "Jul" : "July"));
    expect(render("{{ strftime_now('%d %m %Y | %b %B | %H:%M:%S') }}")).toBe("16 07 2031 | Jul July | 02:11:39");
    expect(words.mock.calls).toEqual([
      ["en", { month: "short" }],
      ["en", { month: "long" }],
    ]);
    expect(render("{{ strftime_now('%q %% 5% Y') }}")).toBe("%q %% 5% Y"); // others stay
  });
});
