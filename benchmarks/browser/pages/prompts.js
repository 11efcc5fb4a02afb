/**
 * Prompts that are the same for everybody and share no beginning: nothing of one is in the cache for another.
 *
 * wllama takes text only. The tokenizer of benchmarks/checkpoints.py knows bytes (id: byte + 3), and llama.cpp puts the
 * begin token and a space, which it writes as "▁", before a text.
 */
export const PROMPTS = 12;
const BEFORE = [1, ...new TextEncoder().encode("▁").map((byte) => byte + 3)];

/** A text and the ids it becomes, `length` of them. */
export function promptOf(length, seed) {
  let state = (seed * 2654435761 + 97) >>> 0;
  const letters = Array.from({ length: length - BEFORE.length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return 97 + ((state >>> 16) % 26);
  });
  return { text: String.fromCharCode(...letters), ids: [...BEFORE, ...letters.map((letter) => letter + 3)] };
}
