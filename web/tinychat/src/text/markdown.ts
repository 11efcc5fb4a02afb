/**
 * Markdown of a model's answer as DOM nodes that are safe to insert.
 *
 * Two walls: raw HTML in the Markdown is shown as text, never parsed; and what Marked makes of the rest passes DOMPurify
 * with short lists of elements and attributes. Nothing is ever loaded: images become links.
 */

import DOMPurify, { type DOMPurify as Purifier } from "dompurify";
import { Marked, type Tokens } from "marked";

const ALLOWED_TAGS = [
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
  "h1",
  "h2",
  "h3",
  "h4",
  "h5",
  "h6",
  "table",
  "thead",
  "tbody",
  "tr",
  "th",
  "td",
]; // prettier-ignore
const ALLOWED_ATTR = ["href", "start", "align", "class"];
const LANGUAGE = /^[\w+#.-]{1,20}$/u;
/** An answer is far shorter; what is longer was put there to hurt. */
const MAX_LENGTH = 200_000;

export function escapeHtml(text: string): string {
  return text.replace(
    /[&<>"']/gu,
    (character) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[character] ?? "",
  );
}

const marked = new Marked({
  gfm: true,
  // A line break in a chat is meant as one.
  breaks: true,
  async: false,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escapeHtml(text),
    image: ({ href, text }: Tokens.Image) => `<a href="${escapeHtml(href)}">${escapeHtml(text || "image")}</a>`,
    checkbox: ({ checked }: Tokens.Checkbox) => (checked ? "☑ " : "☐ "),
  },
});

let purifier: Purifier | undefined;

function purify(html: string): DocumentFragment {
  purifier ??= DOMPurify(window);
  const parsed = purifier.sanitize(html, {
    ALLOWED_TAGS,
    ALLOWED_ATTR,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
  // Nodes that are moved, not copied, out of the document they were parsed in keep it alive in Chromium.
  return document.importNode(parsed, true);
}

/** The address if it leads to another page or a mail program; undefined for `javascript:`, `data:` and relative ones. */
export function safeAddress(href: string | null): string | undefined {
  if (href === null || !/^(https?:\/\/|mailto:)/iu.test(href.trim())) return undefined;
  try {
    const url = new URL(href.trim());
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : undefined;
  } catch {
    return undefined;
  }
}

function settleLinks(fragment: DocumentFragment): void {
  for (const link of fragment.querySelectorAll("a")) {
    const href = safeAddress(link.getAttribute("href"));
    if (href === undefined) {
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.href = href;
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
}

/** The page's own headings end at h3: the answer's highest becomes h4, and none is skipped below it. */
function settleHeadings(fragment: DocumentFragment): void {
  const headings = [...fragment.querySelectorAll("h1, h2, h3, h4, h5, h6")];
  const depths = [...new Set(headings.map(({ localName }) => localName))].sort();
  for (const heading of headings) {
    const level = Math.min(6, 4 + depths.indexOf(heading.localName));
    const settled = document.createElement(`h${level}`);
    settled.append(...heading.childNodes);
    heading.replaceWith(settled);
  }
}

const SVG = "http://www.w3.org/2000/svg";

/** Without text of its own, so that an element's text stays the answer's. */
function copyButton(): HTMLButtonElement {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "icon-button code-copy";
  button.dataset["testid"] = "copy-code";
  button.setAttribute("aria-label", "Copy code");
  button.title = "Copy code";
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "path");
  use.setAttribute(
    "d",
    "M9 9h9a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2h-9a2 2 0 0 1-2-2v-8a2 2 0 0 1 2-2zM5 15a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2h8a2 2 0 0 1 2 2",
  );
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.append(use);
  button.append(svg);
  return button;
}

function wrap(element: Element, className: string): HTMLDivElement {
  const box = document.createElement("div");
  box.className = className;
  element.replaceWith(box);
  box.append(element);
  return box;
}

function settleBlocks(fragment: DocumentFragment): void {
  for (const pre of fragment.querySelectorAll("pre")) {
    const code = pre.querySelector("code");
    const language = code?.className.replace(/^language-/u, "") ?? "";
    const box = wrap(pre, "code-block");
    if (LANGUAGE.test(language)) box.dataset["language"] = language;
    // What scrolls sideways must be reachable by keyboard.
    pre.tabIndex = 0;
    box.append(copyButton());
  }
  for (const element of fragment.querySelectorAll("[class]")) {
    if (element.matches("code")) element.removeAttribute("class");
  }
  for (const table of fragment.querySelectorAll("table")) wrap(table, "table-scroll").tabIndex = 0;
  // Markers and borders stand where the text begins.
  for (const block of fragment.querySelectorAll<HTMLElement>("ul, ol, blockquote, table")) block.dir = "auto";
}

/** The answer's Markdown as nodes. Text that cannot be parsed is shown as it is. */
export function renderMarkdown(source: string): DocumentFragment {
  let fragment: DocumentFragment;
  try {
    const text = source.length > MAX_LENGTH ? source.slice(0, MAX_LENGTH) : source;
    fragment = purify(marked.parse(text) as string);
  } catch {
    // Nesting deeper than the parser's stack.
    fragment = document.createDocumentFragment();
    const paragraph = document.createElement("p");
    paragraph.textContent = source;
    fragment.append(paragraph);
  }
  settleLinks(fragment);
  settleHeadings(fragment);
  settleBlocks(fragment);
  // The text of the element that holds all this is to be the answer's, and end where it ends.
  while (fragment.lastChild?.nodeType === Node.TEXT_NODE && fragment.lastChild.textContent?.trim() === "") {
    fragment.lastChild.remove();
  }
  return fragment;
}

/**
 * Makes the children of `element` those of `fragment`, touching only what differs at the end: while an answer streams,
 * earlier paragraphs keep the reader's selection and scroll position.
 */
export function patchChildren(element: Element, fragment: DocumentFragment): void {
  const fresh = [...fragment.childNodes];
  let same = 0;
  while (same < fresh.length && same < element.childNodes.length) {
    if (element.childNodes[same]?.isEqualNode(fresh[same] ?? null) !== true) break;
    same++;
  }
  while (element.childNodes.length > same) element.lastChild?.remove();
  element.append(...fresh.slice(same));
}
