"""Reference numbers for tests of other implementations: float32, CPU, batch norm unfused.

    python make_golden.py --model ../../../assets/models/tinyyolo --images ../../../assets/models/tinyyolo/test_images/clean_card.png ... --out out
"""
import argparse
import json
import os

import torch
from PIL import Image
from safetensors.torch import save_file

from detect import letterbox, load_model
from yolov8 import box_iou, decode, nms

CONF, IOU = 0.25, 0.5

if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True)
    ap.add_argument("--images", required=True, nargs="+")
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    torch.manual_seed(0)
    model, cfg = load_model(a.model)
    tens, meta = {}, {"about": "float32 CPU reference; see README.md", "conf": CONF, "iou": IOU, "images": {}}
    for p in a.images:
        n = os.path.splitext(os.path.basename(p))[0]
        im = Image.open(p).convert("RGB")
        x, s, dx, dy = letterbox(im, cfg["imgsz"], cfg["pad_value"])
        with torch.no_grad():
            outs = model(x)
            b, sc = decode(outs, model.model[22].dfl, cfg["reg_max"])
            d64 = model.double()(x.double())
            model.float()
        err = max((u.double() - v).abs().max().item() for u, v in zip(outs, d64))
        det = nms(b, sc, CONF, IOU, 300, agnostic=True)[0]
        # how close any decision came to its threshold
        top = sc[0].amax(1)
        cand = b[0][top > CONF]
        o = box_iou(cand, cand)
        o = o[~torch.eye(len(o), dtype=torch.bool)]
        tens[n + ".input"] = x
        for k, t in enumerate(outs):
            tens["%s.head%d" % (n, k)] = t.contiguous()
        tens[n + ".detections"] = det.contiguous()
        meta["images"][n] = {
            "file": "test_images/" + os.path.basename(p), "width": im.width, "height": im.height,
            "letterbox": {"scale": s, "left": dx, "top": dy}, "head_shapes": [list(t.shape) for t in outs],
            "max_abs_difference_to_float64": err,
            "margin_to_conf_threshold": float((top - CONF).abs().min()), "margin_to_iou_threshold": float((o - IOU).abs().min()),
            "detections": [{"class": cfg["names"][int(r[5])], "score": round(r[4], 5), "box": [round(v, 3) for v in r[:4]]} for r in det.tolist()]}
        print(n, len(det), "detections, float32 vs float64 %.2e" % err, "margins", meta["images"][n]["margin_to_conf_threshold"], meta["images"][n]["margin_to_iou_threshold"])
    save_file(tens, os.path.join(a.out, "golden.safetensors"))
    with open(os.path.join(a.out, "golden.json"), "w") as f:
        json.dump(meta, f, indent=1)
