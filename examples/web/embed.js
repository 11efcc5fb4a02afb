// Search by meaning. Put it beside the model/ that `tinyweb export embed` wrote.
import { element, fail, say, showProgress } from "./common.js";
import { load } from "./model/model.js";

const [form, texts, query, search, found] = ["form", "texts", "query", "search", "found"].map(element);

try {
  const embedder = await load({ onProgress: showProgress });
  say(`Ready: ${embedder.info.model} on ${embedder.info.backend} (${embedder.info.adapter}).`);
  search.disabled = false;

  form.addEventListener("submit", async (/** @type {Event} */ event) => {
    event.preventDefault();
    const lines = texts.value.split("\n").filter(Boolean);
    if (lines.length === 0 || query.value === "") return;
    try {
      const vectors = await embedder.embed(lines);
      const [wanted] = await embedder.embed([query.value], { kind: "query" });
      // The vectors have length 1: their product is the cosine of the angle between them.
      const scored = vectors.map((vector, i) => ({ text: lines[i], score: vector.reduce((sum, x, k) => sum + x * wanted[k], 0) }));
      scored.sort((a, b) => b.score - a.score);
      found.replaceChildren(
        ...scored.map(({ text, score }) => {
          const item = document.createElement("li");
          item.textContent = `${score.toFixed(2)} ${text}`;
          return item;
        }),
      );
    } catch (error) {
      fail(error);
    }
  });
} catch (error) {
  fail(error);
}
