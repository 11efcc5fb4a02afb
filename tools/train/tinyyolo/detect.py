"""Run the detector on image files with PyTorch in float32 on the CPU and draw what it finds.

    python detect.py --model ../../../assets/models/tinyyolo --out drawn image.jpg ...
"""
import argparse
import json
import os

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import load_file

from yolov8 import YOLOv8, decode, nms


def load_model(folder):
    cfg = json.load(open(os.path.join(folder, "config.json")))
    model = YOLOv8(cfg["nc"], cfg["width_multiple"], cfg["depth_multiple"], cfg["max_channels"], cfg["reg_max"])
    sd = {k: v.float() for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}
    model.load_state_dict(sd, strict=True)
    return model.eval().float(), cfg


def letterbox(im, size, pad=114):
    """PIL image -> (1, 3, size, size) float32 in 0..1, scale, left, top"""
    s = min(size / im.width, size / im.height)
    w, h = max(1, round(im.width * s)), max(1, round(im.height * s))
    small = im.convert("RGB").resize((w, h), Image.BILINEAR)
    x, y = (size - w) // 2, (size - h) // 2
    out = Image.new("RGB", (size, size), (pad,) * 3)
    out.paste(small, (x, y))
    return torch.from_numpy(np.asarray(out).astype(np.float32) / 255).permute(2, 0, 1)[None].contiguous(), s, x, y


@torch.no_grad()
def detect(model, cfg, im, conf=0.25, iou=0.5, agnostic=True, **kw):
    """-> (n, 6) in pixels of the original image: x1 y1 x2 y2 score class"""
    t, s, x, y = letterbox(im, cfg["imgsz"], cfg["pad_value"])
    b, p = decode(model(t), model.model[22].dfl, cfg["reg_max"])
    d = nms(b, p, conf, iou, 300, agnostic=agnostic, **kw)[0].clone()
    d[:, [0, 2]] = ((d[:, [0, 2]] - x) / s).clamp(0, im.width)
    d[:, [1, 3]] = ((d[:, [1, 3]] - y) / s).clamp(0, im.height)
    return d


def draw(im, det, names, truth=()):
    im = im.convert("RGB").copy()
    d = ImageDraw.Draw(im)
    try:
        f = ImageFont.load_default(max(12, im.height // 28))
    except TypeError:
        f = ImageFont.load_default()
    for t in truth:
        d.rectangle(t["box"], outline=(40, 200, 60), width=1)
    for x1, y1, x2, y2, s, c in det.tolist():
        d.rectangle((x1, y1, x2, y2), outline=(255, 40, 40), width=2)
        t = "%s %.2f" % (names[int(c)], s)
        b = d.textbbox((x1, y1), t, font=f, anchor="lb")
        if b[1] < 0:
            b = d.textbbox((x1, y1), t, font=f, anchor="lt")
        d.rectangle(b, fill=(255, 40, 40))
        d.text((b[0], b[1]), t, fill="white", font=f, anchor="lt")
    return im


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True)
    ap.add_argument("--out", default="")
    ap.add_argument("--conf", type=float, default=0.25)
    ap.add_argument("images", nargs="+")
    a = ap.parse_args()
    model, cfg = load_model(a.model)
    for p in a.images:
        im = Image.open(p).convert("RGB")
        det = detect(model, cfg, im, a.conf)
        print(os.path.basename(p), " ".join("%s:%.2f" % (cfg["names"][int(c)], s) for s, c in det[:, 4:].tolist()))
        if a.out:
            os.makedirs(a.out, exist_ok=True)
            draw(im, det, cfg["names"]).save(os.path.join(a.out, os.path.splitext(os.path.basename(p))[0] + ".png"))
