"""Draws prompts with a checkpoint of the training and checks the pictures.

    python sample.py --out OUT --tokenizer TOK --to DIR [--count 4] [--steps 20] [--guidance 5]
Before the autoencoder is there the blocks' mean colours stand for the picture.
"""
import argparse
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch

import common
import tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "assets" / "models" / "tinysd"))
import eval as judge


def blocks(z):
    colour = torch.einsum("ij,njhw->nihw", torch.linalg.inv(torch.tensor(common.COLOUR_AXES)), z[:, :3])
    img = colour + torch.tensor(common.COLOUR_MEAN)[:, None, None]
    return torch.nn.functional.interpolate(img, size=(common.SIZE, common.SIZE), mode="bicubic") * 2 - 1


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True, help="the training's folder")
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--to", required=True)
    ap.add_argument("--count", type=int, default=4, help="prompts of each family")
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--guidance", type=float, default=5.0)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    os.makedirs(args.to, exist_ok=True)
    torch.set_num_threads(1)
    state = torch.load(os.path.join(args.out, "average.pt"))
    shipped = lambda part: {k: v.half().float() for k, v in part.items()}
    print("%d steps, %.1f minutes" % (state["steps"], state["minutes"]))
    tok = tokenizer.Tokenizer.load(args.tokenizer)
    unet, text = common.make_unet().eval(), common.ClipText(len(tok.ids))
    unet.load_state_dict(shipped(state["unet"]))
    text.load_state_dict(shipped(state["text"]))
    jobs = judge.plan(random.Random(args.seed), args.count)
    z = torch.randn(len(jobs), 4, common.LATENT, common.LATENT, generator=torch.Generator().manual_seed(args.seed))
    cond, blank = text(torch.tensor([tok(p) for _, p in jobs])), text(torch.tensor([tok("")]))
    z = torch.cat([common.ddim(unet, c, blank, n, args.steps, args.guidance)
                   for c, n in zip(cond.split(28), z.split(28), strict=True)])
    path = os.path.join(args.out, "vae.pt")
    if os.path.exists(path):
        vae = common.make_vae().eval()
        vae.load_state_dict(shipped(torch.load(path)))
        img = vae.decode(z).sample
    else:
        img = blocks(z)
    images = list(((img / 2 + 0.5).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy())
    table, wrong = judge.report(jobs, images)
    judge.show(table)
    for prompt, what in wrong[:40]:
        print("   ", prompt, what)
    judge.contact_sheet(images[:96], [p for _, p in jobs[:96]], 8, Path(args.to) / "sheet.png")
    np.save(os.path.join(args.to, "images.npy"), np.array(images))


if __name__ == "__main__":
    main()
