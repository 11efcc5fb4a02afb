// @vitest-environment jsdom
import { describe, expect, test } from "vitest";
import { escapeHtml, patchChildren, renderMarkdown, safeAddress } from "../../src/text/markdown";

function html(source: string): string {
  const box = document.createElement("div");
  box.append(renderMarkdown(source));
  return box.innerHTML;
}

function element(source: string): HTMLElement {
  const box = document.createElement("div");
  box.append(renderMarkdown(source));
  return box;
}

describe("Markdown", () => {
  test("paragraphs, emphasis and line breaks", () => {
    expect(html("One **two** *three*\nfour\n\nfive ~~six~~")).toBe(
      "<p>One <strong>two</strong> <em>three</em><br>four</p>\n<p>five <del>six</del></p>",
    );
  });

  test("lists", () => {
    expect(html("3. a\n4. b\n   - c").replaceAll("\n", "")).toBe(
      '<ol start="3" dir="auto"><li>a</li><li>b<ul dir="auto"><li>c</li></ul></li></ol>',
    );
    expect(element("- [x] done\n- [ ] open").textContent).toContain("☑ done");
    expect(element("- [x] done").querySelector("input")).toBeNull();
  });

  test("tables keep their alignment and can be scrolled by keyboard", () => {
    const box = element("| a | b |\n| :-: | --: |\n| 1 | 2 |");
    expect(box.querySelector(".table-scroll")?.getAttribute("tabindex")).toBe("0");
    expect([...box.querySelectorAll("td")].map((cell) => cell.getAttribute("align"))).toEqual(["center", "right"]);
  });

  test("code blocks name their language and can be copied; the text stays the code's", () => {
    const box = element("```python\nprint('<b>')\n```");
    expect(box.querySelector(".code-block")?.getAttribute("data-language")).toBe("python");
    expect(box.querySelector("pre")?.textContent).toBe("print('<b>')\n");
    expect(box.querySelector("button")?.getAttribute("aria-label")).toBe("Copy code");
    expect(box.textContent?.trim()).toBe("print('<b>')");
    expect(box.querySelector("code")?.hasAttribute("class")).toBe(false);
  });

  test("a strange language is no language", () => {
    const box = element('```py" onmouseover="x\ncode\n```');
    expect(box.querySelector("[onmouseover]")).toBeNull();
    expect(box.querySelector(".code-block")?.hasAttribute("data-language")).toBe(false);
  });

  test("a code block that is still being written is one already", () => {
    expect(element("Look:\n\n```js\nlet a =").querySelector("pre")?.textContent).toBe("let a =\n");
  });

  test("headings fit below the page's own, without gaps", () => {
    const levels = [...element("# a\n\n### b\n\n# c\n\n###### d").children].map(({ localName }) => localName);
    expect(levels).toEqual(["h4", "h5", "h4", "h6"]);
    expect(element("## only").firstElementChild?.localName).toBe("h4");
  });

  test("links open elsewhere, and tell nothing", () => {
    const link = element("[site](https://example.org/a?b=1&c=2)").querySelector("a");
    expect(link?.href).toBe("https://example.org/a?b=1&c=2");
    expect(link?.target).toBe("_blank");
    expect(link?.rel).toBe("noopener noreferrer nofollow");
    expect(element("https://example.org").querySelector("a")?.href).toBe("https://example.org/");
    expect(element("<me@example.org>").querySelector("a")?.href).toBe("mailto:me@example.org");
  });

  test("images are links, not loaded", () => {
    const box = element("![a *cat*](https://example.org/cat.png)");
    expect(box.querySelector("img")).toBeNull();
    expect(box.querySelector("a")?.href).toBe("https://example.org/cat.png");
    expect(box.textContent).toContain("cat");
    expect(element("![](data:image/png;base64,AAAA)").innerHTML).toBe("<p>image</p>");
  });

  test("raw HTML is shown, not parsed", () => {
    expect(element("Use <div class='a'> or <br>.").textContent?.trim()).toBe("Use <div class='a'> or <br>.");
    expect(element("<section>\n\nText\n\n</section>").querySelector("section")).toBeNull();
  });
});

describe("hostile text", () => {
  const ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<math><mtext></mtext><mglyph><style><img src=x onerror=alert(1)></style></mglyph></math>",
    "<details open ontoggle=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "<form action='https://evil.example'><input name=a><button>x</button></form>",
    "<style>*{background:url(https://evil.example)}</style>",
    "<link rel=stylesheet href=https://evil.example>",
    "<base href=https://evil.example>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<object data=javascript:alert(1)></object>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](&#x6A&#x61&#x76&#x61&#x73&#x63&#x72&#x69&#x70&#x74&#x3A;alert(1))",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](blob:https://example.org/1)",
    "[x](file:///etc/passwd)",
    "[x](//evil.example)",
    "[x](../settings)",
    "<javascript:alert(1)>",
    '![x](x" onerror="alert(1))',
    '![x"onerror="alert(1)](https://example.org/a)',
    '[x](https://example.org "a\\" onclick=\\"alert(1)")',
    "[a]: javascript:alert(1)\n\n[a]",
    "`<img src=x onerror=alert(1)>`",
    "```html\n<script>alert(1)</script>\n```",
    '```"><img src=x onerror=alert(1)>\n```',
    "| <img src=x onerror=alert(1)> |\n| --- |\n| [x](javascript:alert(1)) |",
    "# <img src=x onerror=alert(1)>",
    "<<script>script>alert(1)<</script>/script>",
    "<!--<img src=x onerror=alert(1)>-->",
    "<![CDATA[<img src=x onerror=alert(1)>]]>",
    "<?php <img src=x onerror=alert(1)> ?>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<div id=app><h1 id=__proto__>",
  ];
  const ELEMENTS = new Set([
    "p",
    "br",
    "hr",
    "strong",
    "em",
    "del",
    "code",
    "pre",
    "blockquote",
    "ul",
    "ol",
    "li",
    "a",
    "h4",
    "h5",
    "h6",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "div",
    "button",
    "svg",
    "path",
  ]); // prettier-ignore
  const ATTRIBUTES = new Set([
    "href",
    "target",
    "rel",
    "dir",
    "start",
    "align",
    "class",
    "tabindex",
    "data-language",
    "data-testid",
    "type",
    "title",
    "aria-label",
    "aria-hidden",
    "viewBox",
    "d",
  ]); // prettier-ignore

  test.each(ATTACKS)("%s", (source) => {
    const box = element(source);
    for (const node of box.querySelectorAll("*")) {
      expect(ELEMENTS).toContain(node.localName);
      for (const { name, value } of node.attributes) {
        expect(ATTRIBUTES).toContain(name);
        if (name === "href") expect(value).toMatch(/^(https?:\/\/|mailto:)/u);
      }
      // Buttons and icons are the page's own, inside of code blocks only.
      if (["div", "button", "svg", "path"].includes(node.localName)) {
        expect(node.closest(".code-block, .table-scroll")).not.toBeNull();
      }
    }
  });

  test("nesting deeper than any parser's stack is shown as text", () => {
    const deep = `${">".repeat(50_000)}x`;
    expect(element(deep).textContent).toContain("x");
  });

  test("megabytes are cut", () => {
    expect((element("word ".repeat(200_000)).textContent ?? "").length).toBeLessThan(210_000);
  });
});

test("addresses", () => {
  expect(safeAddress("https://example.org")).toBe("https://example.org/");
  expect(safeAddress(" http://example.org/ä ")).toBe("http://example.org/%C3%A4");
  expect(safeAddress("mailto:a@b.c")).toBe("mailto:a@b.c");
  for (const bad of [null, "", "x", "/x", "#x", "javascript:x", "https://", "http://[", "ftp://example.org"]) {
    expect(safeAddress(bad)).toBeUndefined();
  }
});

test("escaping", () => expect(escapeHtml(`<a b="c">&'`)).toBe("&lt;a b=&quot;c&quot;&gt;&amp;&#39;"));

describe("patchChildren", () => {
  test("leaves equal beginnings alone", () => {
    const box = document.createElement("div");
    patchChildren(box, renderMarkdown("One.\n\nTwo"));
    const first = box.firstElementChild;
    const second = box.lastElementChild;
    patchChildren(box, renderMarkdown("One.\n\nTwo words.\n\n- three"));
    expect(box.firstElementChild).toBe(first);
    expect(box.contains(second)).toBe(false);
    expect(box.innerHTML).toBe(html("One.\n\nTwo words.\n\n- three"));
  });

  test("every prefix of a text ends where rendering it at once does", () => {
    const text = "# A\n\nSome `code` and **bold**:\n\n```js\nlet a = 1;\n```\n\n1. x\n2. y\n\n| a |\n| - |\n| b |";
    const box = document.createElement("div");
    for (let end = 0; end <= text.length; end++) patchChildren(box, renderMarkdown(text.slice(0, end)));
    expect(box.innerHTML).toBe(html(text));
    patchChildren(box, renderMarkdown(""));
    expect(box.childNodes).toHaveLength(0);
  });
});
