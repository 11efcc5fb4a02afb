"""Renders scenes of plain shapes into shards of pictures, latents and captions.

    python build_pool.py --tokenizer TOK --out POOL --seed 1 --shards 8
One shard per family and number: {pixels uint8 [n,3,64,64], latents float16 [n,4,16,16],
ids int16 [n,3,32], slots float32 [n,2,6], back int16 [n]}.  The latents are defined, not
learned: see `common.latents`.
"""
import argparse
import os
import random
import time

import numpy as np
import torch

import common
import render
import scenes
import tokenizer

CAPTIONS = 3
FAMILIES = ["single", "two", "counted"]


def slots(s):
    """Rows (colour, shape, x, y, size, known) of the first two objects, left or top one first."""
    out = np.full((2, 6), -1, np.float32)
    objs = s.objs[:2]
    if len(objs) == 2:
        a, b = objs
        axis = (lambda o: o.x) if abs(a.x - b.x) > abs(a.y - b.y) else (lambda o: o.y)
        nested = abs(a.x - b.x) + abs(a.y - b.y) < 0.5 * a.s
        objs = objs if nested else sorted(objs, key=axis)
    for row, o in zip(out, objs):
        row[:] = scenes.COLOR_NAMES.index(o.color), scenes.SHAPES.index(o.kind), o.x, o.y, o.s, 1
    return out


def shard(family, seed, n, tok):
    rng = random.Random("%s %d" % (family, seed))
    make = getattr(scenes, family)
    pics = [scenes.sample_scene(rng, CAPTIONS, make) for _ in range(n)]
    packed = scenes.pack(pics)
    img = render.render(packed, common.SIZE)
    named = {scenes.rgb(c): i for i, c in enumerate(scenes.COLOR_NAMES)}
    return dict(
        pixels=(img * 255).round().byte(),
        latents=common.latents(img, render.cover(packed, common.SIZE)).half(),
        ids=torch.tensor(np.array([[tok(c) for c in s.captions] for s in pics], np.int16)),
        slots=torch.tensor(np.array([slots(s) for s in pics])),
        back=torch.tensor([named[s.c1] if s.bg == "solid" else len(named) for s in pics], dtype=torch.int16),
        count=torch.tensor([len(s.objs) for s in pics], dtype=torch.int16),
        captions=[s.captions for s in pics])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--shards", type=int, default=8)
    ap.add_argument("--pictures", type=int, default=2048, help="pictures in a shard")
    ap.add_argument("--families", nargs="+", default=FAMILIES)
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    torch.set_num_threads(1)
    scenes.plain()
    tok = tokenizer.Tokenizer.load(args.tokenizer)
    begin = time.time()
    for i in range(args.shards):
        for family in args.families:
            path = os.path.join(args.out, "%s.%03d.%03d.pt" % (family, args.seed, i))
            torch.save(shard(family, args.seed * 1000 + i, args.pictures, tok), path + ".tmp")
            os.replace(path + ".tmp", path)
            print("%s after %.1f s" % (path, time.time() - begin), flush=True)


if __name__ == "__main__":
    main()
