// The page's tokenizer: reads [{json, config, texts}] from standard input, writes ids and texts of each.
import { Tokenizer } from "@huggingface/tokenizers";

let input = "";
for await (const part of process.stdin) input += part;
const absent = { added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
const found = JSON.parse(input).map(({ json, config, texts }) => {
  const tokenizer = new Tokenizer({ ...absent, ...json }, config);
  return texts.map((text) => {
    const { ids } = tokenizer.encode(text, { add_special_tokens: false });
    return [ids, ids.length ? tokenizer.decode(ids, { skip_special_tokens: true }) : ""];
  });
});
console.log(JSON.stringify(found));
