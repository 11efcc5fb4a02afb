"""Trains the denoising UNet and, slowly, the text encoder on the pool's latents, on a CPU.

    python train_unet.py --pool POOL --tokenizer TOK --text TEXT_FIRST --out OUT --minutes 85
Goes on from OUT/state.pt where there is one.  OUT/control.json ({"threads": 1, "minutes": 85})
is read again and again, so that threads and end can be changed while it runs.  Writes
OUT/average.pt (averaged weights of both) every few minutes.
"""
import argparse
import glob
import json
import os
import time

import torch

import common
import optim
import tokenizer

MIX = {"single": (0.8, 0.42), "two": (0.17, 0.44), "counted": (0.03, 0.14)}     # shares first, and at the end
OUTER = ("unet.conv_in", "unet.conv_out", "embedding")


class Pool:
    """Latents and captions of one family, growing as shards arrive."""

    def __init__(self, folder, family):
        self.pattern, self.seen, self.lat, self.ids = os.path.join(folder, family + ".*.pt"), set(), None, None
        self.poll()

    def poll(self):
        for f in sorted(set(glob.glob(self.pattern)) - self.seen):
            d = torch.load(f)
            self.seen.add(f)
            self.lat = d["latents"] if self.lat is None else torch.cat([self.lat, d["latents"]])
            self.ids = d["ids"] if self.ids is None else torch.cat([self.ids, d["ids"]])

    def batch(self, n):
        i = torch.randint(len(self.lat), (n,))
        return self.lat[i].float(), self.ids[i, torch.randint(self.ids.shape[1], (n,))].long()


class Trainer:
    def __init__(self, args):
        self.args = args
        tok = tokenizer.Tokenizer.load(args.tokenizer)
        self.unet = common.make_unet()
        self.text = common.ClipText(len(tok.ids))
        self.text.load_state_dict(torch.load(args.text))
        named = [("unet." + k, p) for k, p in self.unet.named_parameters()] + \
                [("text." + k, p) for k, p in self.text.named_parameters()]
        self.opt = optim.Mixed(named, OUTER, args.lr, args.matrix_lr, args.ema, slow=("text.",), turns=2)
        self.ac = common.alphas_cumprod()
        # The weight of an error in the predicted picture is min(snr + 0.15, 5): the plan of the
        # picture is made at the highest noise levels, which min-SNR weights would all but ignore.
        snr = self.ac / (1 - self.ac)
        w = torch.clamp(snr + 0.15, max=5.0) / snr
        q = w.sqrt().clamp(0.3, 3.0)          # noise levels that count for more are drawn more often
        q = q / q.sum()
        self.cdf, self.weight = torch.cumsum(q, 0), w / (q * 1000)
        self.empty = torch.tensor(tok(""))

    def loss(self, lat, ids):
        b = len(lat)
        ids = torch.where((torch.rand(b) < self.args.drop)[:, None], self.empty, ids)
        t = torch.searchsorted(self.cdf, (torch.arange(b) + torch.rand(b)) / b).clamp(max=999)
        a = self.ac[t][:, None, None, None]
        noise = torch.randn_like(lat) + self.args.offset * torch.randn(b, 4, 1, 1)
        # Sampling starts from pure noise at t = 900 or so, where training pictures still shine
        # through.  So part of the noisiest pictures get less of the picture than t says.
        share = torch.where((t > 850) & (torch.rand(b) < 0.3), torch.rand(b), 1.0)[:, None, None, None]
        x = share * a.sqrt() * lat + (1 - a).sqrt() * noise
        noise = (x - a.sqrt() * lat) / (1 - a).sqrt()
        e = self.unet(x, t, self.text(ids), return_dict=False)[0]
        per = ((e - noise) ** 2).mean((1, 2, 3))
        return (per * self.weight[t]).mean(), per.detach(), t

    def save(self, seconds):
        out = self.args.out
        torch.save(dict(self.opt.state(), seconds=seconds), os.path.join(out, "state.tmp"))
        os.replace(os.path.join(out, "state.tmp"), os.path.join(out, "state.pt"))
        self.opt.swap()
        torch.save(dict(unet=self.unet.state_dict(), text=self.text.state_dict(), steps=self.opt.count,
                        minutes=seconds / 60), os.path.join(out, "average.tmp"))
        os.replace(os.path.join(out, "average.tmp"), os.path.join(out, "average.pt"))
        self.opt.swap()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pool", required=True)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--text", required=True, help="text_first.pt of train_text.py")
    ap.add_argument("--out", required=True)
    ap.add_argument("--minutes", type=float, default=85)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--lr", type=float, default=1.5e-3)
    ap.add_argument("--matrix-lr", type=float, default=4e-3)
    ap.add_argument("--ema", type=float, default=0.997)
    ap.add_argument("--offset", type=float, default=0.1)
    ap.add_argument("--drop", type=float, default=0.1)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    control = dict(threads=args.threads, minutes=args.minutes)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tr = Trainer(args)
    seconds = 0.0
    if os.path.exists(os.path.join(args.out, "state.pt")):
        state = torch.load(os.path.join(args.out, "state.pt"))
        tr.opt.load(state)
        seconds = state["seconds"]
        torch.manual_seed(args.seed + tr.opt.count)
    pools = {f: Pool(args.pool, f) for f in MIX}
    bins, hits = torch.zeros(10), torch.zeros(10)
    last = shown = time.time()
    saved, n = seconds, 0
    while (progress := seconds / (60 * control["minutes"])) < 1:
        parts = torch.multinomial(torch.tensor([a + (b - a) * progress for a, b in MIX.values()]), args.batch, True)
        got = [pools[f].batch(int((parts == i).sum())) for i, f in enumerate(MIX)]
        order = torch.randperm(args.batch)
        loss, per, t = tr.loss(torch.cat([g[0] for g in got])[order], torch.cat([g[1] for g in got])[order])
        loss.backward()
        norm = tr.opt.step(common.lr_at(progress, 1.0, 0.02, 0.0))
        bins.index_add_(0, t // 100, per)
        hits.index_add_(0, t // 100, torch.ones_like(per))
        now = time.time()
        seconds, last, n = seconds + now - last, now, n + 1
        if n % 50 == 0:
            text = "step %d  %.1f min  %.2f s a step  loss %.4f norm %.2f  by t/100: %s" % (
                tr.opt.count, seconds / 60, (now - shown) / 50, float(loss.detach()), float(norm),
                " ".join("%.4f" % v for v in (bins / hits.clamp(min=1)).tolist()))
            shown = now
            print(text, flush=True)
            bins.zero_()
            hits.zero_()
            for p in pools.values():
                p.poll()
        if n % 10 == 0 and os.path.exists(os.path.join(args.out, "control.json")):
            try:
                with open(os.path.join(args.out, "control.json")) as f:
                    control.update(json.load(f))
            except ValueError:
                pass                          # being written: the next look will do
            torch.set_num_threads(int(control["threads"]))
        if seconds - saved > 240:
            tr.save(seconds)
            saved = seconds
    tr.save(seconds)


if __name__ == "__main__":
    main()
