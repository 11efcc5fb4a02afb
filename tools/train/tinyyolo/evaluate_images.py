"""mAP and precision/recall on a folder of images with a ground_truth.json (see make_test_images.py).

    python evaluate_images.py --model ../../../assets/models/tinyyolo --images many
"""
import argparse
import json
import os

import numpy as np
from PIL import Image

from detect import detect, load_model
from metrics import DetectionMetrics

if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True)
    ap.add_argument("--images", required=True)
    ap.add_argument("--conf", type=float, default=0.25)
    ap.add_argument("--json", default="")
    a = ap.parse_args()
    model, cfg = load_model(a.model)
    names = cfg["names"]
    truth = json.load(open(os.path.join(a.images, "ground_truth.json")))["images"]
    m = DetectionMetrics(names)
    for f, t in sorted(truth.items()):
        im = Image.open(os.path.join(a.images, f)).convert("RGB")
        ob = t["objects"]
        real = [o for o in ob if not o.get("ignore")]
        gb = np.array([o["box"] for o in real], float).reshape(-1, 4)
        gc = np.array([names.index(o["class"]) for o in real], int)
        ig = np.array([o["box"] for o in ob if o.get("ignore")], float).reshape(-1, 4)
        m.add(detect(model, cfg, im, 0.01, 0.7, False, multi_label=True).numpy(), gb, gc, ig)
        m.add_operating(detect(model, cfg, im, a.conf).numpy(), gb, gc, ig)
    r = m.result()
    op = m.operating()
    print("%d images, %d objects: mAP50 %.4f  mAP50-95 %.4f; at confidence %g: precision %.3f recall %.3f F1 %.3f" % (
        len(truth), m.n_gt.sum(), r["map50"], r["map50_95"], a.conf, op["precision"], op["recall"], op["f1"]))
    print("; ".join(op["top_confusions"]))
    if a.json:
        json.dump({**r, "at_conf_%g" % a.conf: op, "images": len(truth), "objects": int(m.n_gt.sum())}, open(a.json, "w"), indent=1)
