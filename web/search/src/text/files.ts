/** Files as text. Nothing in them is executed: of HTML only the words are taken. */

export const MAX_BYTES = 20 * 2 ** 20;
export const ACCEPT = ".txt,.text,.md,.markdown,.html,.htm,.csv,.tsv,.json,.jsonl,.xml,.log,.rst,.tex,.srt,.vtt,text/*,application/json";

/** What is no text, by how its name ends, and what to do about it. */
const OTHERS: [RegExp, string][] = [
  [/\.pdf$/iu, "PDF files cannot be read here: copy the text out of it and paste it, or save it as a text file."],
  [/\.(docx?|odt|rtf|pages|epub)$/iu, "Documents of word processors cannot be read here: save it as plain text or HTML."],
  [/\.(xlsx?|ods|numbers)$/iu, "Spreadsheets cannot be read here: save it as CSV."],
];

export class FileError extends Error {}

/** The text of a file. @throws FileError saying why there is none, in a sentence for people */
export async function textOfFile(file: File): Promise<string> {
  const other = OTHERS.find(([pattern]) => pattern.test(file.name))?.[1] ?? (file.type === "application/pdf" ? OTHERS[0]?.[1] : undefined);
  if (other !== undefined) throw new FileError(`“${file.name}”: ${other}`);
  if (file.size > MAX_BYTES) throw new FileError(`“${file.name}” is larger than ${MAX_BYTES / 2 ** 20} MB: split it first.`);
  let bytes: Uint8Array;
  try {
    bytes = new Uint8Array(await file.arrayBuffer());
  } catch {
    throw new FileError(`“${file.name}” could not be read: it may have been moved or deleted.`);
  }
  const text = decode(bytes);
  if (text === undefined) throw new FileError(`“${file.name}” is no text: add files of plain text, Markdown, HTML, CSV or JSON.`);
  const words = /\.html?$|\.xhtml$/iu.test(file.name) || file.type === "text/html" ? textOfHtml(text) : text;
  if (words.trim() === "") throw new FileError(`“${file.name}” holds no text.`);
  return words.replace(/\r\n?/gu, "\n");
}

/** UTF-8 or UTF-16 with a mark, else UTF-8, else Latin-1; undefined for what is no text. */
export function decode(bytes: Uint8Array): string | undefined {
  const marked = bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : undefined;
  if (marked !== undefined) return new TextDecoder(marked).decode(bytes);
  if (bytes.subarray(0, 65536).includes(0)) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

const SKIPPED = "script, style, noscript, template, svg, head > :not(title)";
const BLOCKS =
  "p, div, section, article, li, tr, h1, h2, h3, h4, h5, h6, blockquote, pre, figure, dt, dd, title, header, footer, table, ul, ol";

/** The words of a page, paragraphs apart. A parsed document runs no script and loads nothing. */
export function textOfHtml(html: string): string {
  const page = new DOMParser().parseFromString(html, "text/html");
  for (const element of page.querySelectorAll(SKIPPED)) element.remove();
  for (const element of page.querySelectorAll("br")) element.replaceWith("\n");
  for (const element of page.querySelectorAll("td, th")) element.append(" ");
  for (const element of page.querySelectorAll(BLOCKS)) element.append("\n\n");
  const text = `${page.title}\n\n${page.body.textContent}`;
  return text
    .replace(/[^\S\n]+/gu, " ")
    .replace(/ ?\n ?/gu, "\n")
    .replace(/\n{3,}/gu, "\n\n")
    .trim();
}

/** A name for a pasted text: its first words. */
export function nameOf(text: string): string {
  const line =
    text
      .trim()
      .split("\n", 1)[0]
      ?.replace(/^[#>*\s-]+/u, "")
      .trim() ?? "";
  return line.length <= 48 ? line || "Pasted text" : `${line.slice(0, 48).replace(/\s+\S*$/u, "")}…`;
}
