/** Text inside of PNG files (W3C PNG, tEXt and iTXt chunks): written and read without touching the picture. */

const SIGNATURE = [137, 80, 78, 71, 13, 10, 26, 10];
/** Texts beyond this are not read: nobody's settings are this long. */
const MAX_TEXT = 1 << 20;

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

export function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (CRC_TABLE[(crc ^ byte) & 255] as number) ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

export function isPng(bytes: Uint8Array): boolean {
  return SIGNATURE.every((byte, i) => bytes[i] === byte);
}

interface Chunk {
  type: string;
  /** Of the whole chunk in the file. */
  start: number;
  end: number;
  data: Uint8Array;
}

/** The chunks of a PNG as far as they are whole. */
function* chunksOf(bytes: Uint8Array): Generator<Chunk> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let start = SIGNATURE.length; start + 12 <= bytes.length; ) {
    const length = view.getUint32(start);
    const end = start + 12 + length;
    if (end > bytes.length) return;
    const type = String.fromCharCode(...bytes.subarray(start + 4, start + 8));
    yield { type, start, end, data: bytes.subarray(start + 8, end - 4) };
    if (type === "IEND") return;
    start = end;
  }
}

const isLatin = (text: string): boolean => [...text].every((letter) => (letter.codePointAt(0) as number) < 256);

function textChunk(keyword: string, text: string): Uint8Array<ArrayBuffer> {
  const latin = isLatin(text);
  const type = latin ? "tEXt" : "iTXt";
  const content = latin ? Uint8Array.from(text, (letter) => letter.charCodeAt(0)) : new TextEncoder().encode(text);
  // iTXt: not compressed, no language, no translated keyword.
  const head = Uint8Array.from([...`${type}${keyword}`].map((letter) => letter.charCodeAt(0)).concat(latin ? [0] : [0, 0, 0, 0, 0]));
  const chunk = new Uint8Array(4 + head.length + content.length + 4);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, head.length - 4 + content.length);
  chunk.set(head, 4);
  chunk.set(content, 4 + head.length);
  view.setUint32(chunk.length - 4, crc32(chunk.subarray(4, chunk.length - 4)));
  return chunk;
}

/** The same picture with these texts, in place of those of the same keywords. @param texts by keyword: 1 … 79 letters of ASCII */
export function withTexts(png: Uint8Array<ArrayBuffer>, texts: Readonly<Record<string, string>>): Uint8Array<ArrayBuffer> {
  if (!isPng(png)) throw new TypeError("This is no PNG file.");
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let from = 0;
  for (const chunk of chunksOf(png)) {
    const keyword = keywordOf(chunk);
    if (keyword !== undefined && keyword in texts) {
      pieces.push(png.subarray(from, chunk.start));
      from = chunk.end;
    }
    if (chunk.type === "IHDR") {
      pieces.push(png.subarray(from, chunk.end), ...Object.entries(texts).map(([key, text]) => textChunk(key, text)));
      from = chunk.end;
    }
  }
  pieces.push(png.subarray(from));
  const whole = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

function keywordOf({ type, data }: Chunk): string | undefined {
  if (type !== "tEXt" && type !== "iTXt") return undefined;
  const end = data.indexOf(0);
  return end > 0 ? String.fromCharCode(...data.subarray(0, Math.min(end, 79))) : undefined;
}

/** All texts by keyword; compressed ones are passed over. Anything that is no PNG has none. */
export function textsOf(bytes: Uint8Array): Record<string, string> {
  const texts: Record<string, string> = {};
  if (!isPng(bytes)) return texts;
  for (const chunk of chunksOf(bytes)) {
    const keyword = keywordOf(chunk);
    if (keyword === undefined || chunk.data.length > MAX_TEXT) continue;
    const rest = chunk.data.subarray(keyword.length + 1);
    if (chunk.type === "tEXt") {
      texts[keyword] = new TextDecoder("latin1").decode(rest);
    } else if (rest[0] === 0) {
      const language = rest.indexOf(0, 2);
      const translated = language < 0 ? -1 : rest.indexOf(0, language + 1);
      if (translated >= 0) texts[keyword] = new TextDecoder().decode(rest.subarray(translated + 1));
    }
  }
  return texts;
}
