"""Trains the autoencoder's two halves apart: the latents between them are defined, not learned.

    python train_vae.py --pool POOL --out OUT --minutes 60
The encoder learns to compute `common.latents` from pixels; the decoder learns to draw the
pixels from such latents with a little noise.  So the UNet need not wait for either.  Goes on
from OUT/vae_state.pt where there is one; reads OUT/vae_control.json like train_unet.py.
Writes OUT/vae.pt (averaged weights; latents of unit variance, no scaling folded in).
"""
import argparse
import glob
import json
import os
import time

import torch

import common
import optim


def load(folder, shards):
    """shards: {family: slice of its shards}."""
    names = [f for fam, cut in shards.items() for f in sorted(glob.glob(os.path.join(folder, fam + ".*.pt")))[cut]]
    got = [torch.load(f) for f in names]
    return torch.cat([d["pixels"] for d in got]), torch.cat([d["latents"] for d in got])


def detail_loss(a, b):
    d = a - b
    dx, dy = d[..., 1:] - d[..., :-1], d[..., 1:, :] - d[..., :-1, :]
    return d.abs().mean() + 2 * (d * d).mean() + dx.abs().mean() + dy.abs().mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pool", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--minutes", type=float, default=60)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--noise", type=float, default=0.2, help="largest standard deviation of noise on the latents")
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    control = dict(threads=1, minutes=args.minutes)
    torch.set_num_threads(1)
    torch.manual_seed(8)
    vae = common.make_vae()
    halves = {"decoder": [vae.post_quant_conv, vae.decoder], "encoder": [vae.encoder, vae.quant_conv]}
    opts = {}
    for half, parts in halves.items():
        named = [("%d.%s" % (i, k), p) for i, part in enumerate(parts) for k, p in part.named_parameters()]
        opts[half] = optim.Mixed(named, ("conv_in", "conv_out"), 1e-3, 2e-3, ema=0.995)
    seconds = 0.0
    if os.path.exists(os.path.join(args.out, "vae_state.pt")):
        state = torch.load(os.path.join(args.out, "vae_state.pt"))
        for half, opt in opts.items():
            opt.load(state[half])
        seconds = state["seconds"]
    pixels, lat = load(args.pool, {"single": slice(6), "two": slice(6), "counted": slice(2)})
    test = load(args.pool, {"two": slice(-1, None)})

    def save():
        for opt in opts.values():
            opt.swap()
        with torch.no_grad():
            x, z = test[0][:64].float() / 127.5 - 1, test[1][:64].float()
            err = (vae.decode(z).sample - x).clamp(-2, 2).pow(2).mean((1, 2, 3)) / 4
            back = (vae.encode(x).latent_dist.mean - z).pow(2).mean((0, 2, 3)).sqrt()
            print("PSNR %.2f dB; error of the encoder's means %s" % (
                float((-10 * err.log10()).mean()), " ".join("%.3f" % v for v in back.tolist())), flush=True)
        torch.save(vae.state_dict(), os.path.join(args.out, "vae.tmp"))
        os.replace(os.path.join(args.out, "vae.tmp"), os.path.join(args.out, "vae.pt"))
        for opt in opts.values():
            opt.swap()
        torch.save(dict({h: o.state() for h, o in opts.items()}, seconds=seconds), os.path.join(args.out, "vae_state.tmp"))
        os.replace(os.path.join(args.out, "vae_state.tmp"), os.path.join(args.out, "vae_state.pt"))

    last, saved, n = time.time(), seconds, 0
    shown = {}
    while (progress := seconds / (60 * control["minutes"])) < 1:
        half = "encoder" if n % 4 == 3 else "decoder"
        i = torch.randint(len(pixels), (args.batch,))
        x, z = pixels[i].float() / 127.5 - 1, lat[i].float()
        if half == "decoder":
            z = z + args.noise * torch.rand(len(z), 1, 1, 1) * torch.randn_like(z)
            loss = detail_loss(vae.decode(z).sample, x)
        else:
            loss = (vae.encode(x).latent_dist.mean - z).pow(2).mean()
        loss.backward()
        opts[half].step(common.lr_at(progress, 1.0, 0.02, 0.0))
        shown[half] = loss.item() if half not in shown else shown[half] * 0.98 + 0.02 * loss.item()
        n += 1
        now = time.time()
        seconds, last = seconds + now - last, now
        if n % 100 == 0:
            print("step %d  %.1f min  %s" % (n, seconds / 60, shown), flush=True)
            if os.path.exists(os.path.join(args.out, "vae_control.json")):
                with open(os.path.join(args.out, "vae_control.json")) as f:
                    control.update(json.load(f))
                torch.set_num_threads(int(control["threads"]))
        if seconds - saved > 180:
            save()
            saved = seconds
    save()


if __name__ == "__main__":
    main()
