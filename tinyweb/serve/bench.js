// Measures the chat of the site that this page is served from, as the page's address asks, and tells the server.
const asked = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];

async function measure() {
  const { load, info } = await import("/model/model.js");
  const begun = performance.now();
  const chat = await load({ backend: asked.backend, ...(asked.threads ? { threads: asked.threads } : {}) });
  const ready = performance.now() - begun;
  const [firsts, rates] = [[], []];
  for (let run = 0; run <= asked.runs; run++) {
    // Other numbers each time, so that nothing is in the cache; of an answer that ends early the rate still counts.
    const ids = Array.from({ length: asked.prompt }, (_, i) => ((i + 1 + run * asked.prompt) * 2654435761) % asked.vocabulary);
    const answer = chat.generateIds(ids, { maxTokens: asked.tokens, temperature: 0, repetitionPenalty: 1 });
    for await (const _ of answer);
    const { firstTokenMs, tokensPerSecond } = await answer.result;
    if (run === 0) continue;
    firsts.push(firstTokenMs);
    if (tokensPerSecond > 0) rates.push(tokensPerSecond);
  }
  const { backend, adapter, memoryBytes, modelBytes, context } = chat.info;
  return { backend, adapter, memoryBytes, modelBytes, context, ready, first: median(firsts), rate: median(rates) ?? 0, name: info?.name };
}

const told = await measure().catch((error) => ({ error: String(error?.message ?? error) }));
await fetch(`result?${encodeURIComponent(JSON.stringify(told))}`);
