"""Teaches the text encoder what captions say, before any picture is drawn.

    python train_text.py --tokenizer TOK --out OUT --seconds 240
From the states at the last three positions (padding, which sees the whole caption) linear
heads must tell the background, the number of objects, and of the first two objects
colour, shape, place and size.  The heads are thrown away: what stays is an encoder whose
states hold these facts in a form that the UNet's cross-attention finds at once.
"""
import argparse
import os
import random
import time

import torch
import torch.nn.functional as F

import build_pool
import common
import optim
import scenes
import tokenizer

MIX = [("single", 0.45), ("two", 0.45), ("counted", 0.1)]


def batch(rng, tok, n):
    pics = []
    for _ in range(n):
        family = rng.choices([f for f, _ in MIX], [w for _, w in MIX])[0]
        pics.append(scenes.sample_scene(rng, 1, getattr(scenes, family)))
    named = {scenes.rgb(c): i for i, c in enumerate(scenes.COLOR_NAMES)}
    back = [named[s.c1] if s.bg == "solid" else len(named) for s in pics]
    return (torch.tensor([tok(s.captions[0]) for s in pics]), torch.tensor([build_pool.slots(s).tolist() for s in pics]),
            torch.tensor(back), torch.tensor([len(s.objs) - 1 for s in pics]))


class Heads(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scene = torch.nn.Linear(dim, 13 + 4)
        self.slot = torch.nn.ModuleList(torch.nn.Linear(dim, 12 + 10 + 3) for _ in range(2))

    def forward(self, states, slots, back, count):
        scene = self.scene(states[:, -1])
        loss = F.cross_entropy(scene[:, :13], back) + 0.5 * F.cross_entropy(scene[:, 13:], count)
        right = [(scene[:, :13].argmax(1) == back).float().mean()]
        for i, head in enumerate(self.slot):
            want = slots[:, i]
            there = want[:, 5] > 0
            out, want = head(states[:, -2 - i])[there], want[there]
            color, shape = want[:, 0].long(), want[:, 1].long()
            loss = loss + F.cross_entropy(out[:, :12], color) + F.cross_entropy(out[:, 12:22], shape)
            loss = loss + 4 * (out[:, 22:] - want[:, 2:5]).pow(2).mean()
            right += [(out[:, :12].argmax(1) == color).float().mean(), (out[:, 12:22].argmax(1) == shape).float().mean(),
                      (out[:, 22:24] - want[:, 2:4]).abs().mean()]
        return loss, torch.stack(right)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--seconds", type=float, default=240)
    ap.add_argument("--batch", type=int, default=128)
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    scenes.plain()
    tok, rng = tokenizer.Tokenizer.load(args.tokenizer), random.Random(99)
    text = common.ClipText(len(tok.ids))
    heads = Heads(common.TEXT_CONFIG["hidden_size"])
    named = [("text." + k, p) for k, p in text.named_parameters()] + \
            [("heads." + k, p) for k, p in heads.named_parameters()]
    opt = optim.Mixed(named, ("embedding", "heads"), lr=3e-3, matrix_lr=6e-3, ema=0.99)
    begin, n, shown = time.time(), 0, None
    while (progress := (time.time() - begin) / args.seconds) < 1:
        ids, *want = batch(rng, tok, args.batch)
        loss, right = heads(text(ids), *want)
        loss.backward()
        opt.step(common.lr_at(progress, 1.0))
        n += 1
        shown = right.detach() if shown is None else shown.lerp(right.detach(), 0.05)
        if n % 50 == 0:
            print("step %d  %.0f s  loss %.3f  back %.3f | colour shape place: %s" % (
                n, time.time() - begin, float(loss), float(shown[0]), " ".join("%.3f" % v for v in shown[1:].tolist())), flush=True)
    opt.swap()
    torch.save(text.state_dict(), os.path.join(args.out, "text_first.pt"))


if __name__ == "__main__":
    main()
