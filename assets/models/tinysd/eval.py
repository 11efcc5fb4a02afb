"""Checks from their pixels whether pictures show what their prompts say.

    python eval.py --model DIR --count 40 --out DIR     samples random prompts with diffusers and checks them
    python eval.py --images DIR --prompts FILE          checks pictures that something else has made

In the second form FILE is a JSON list of {"prompt": ..., "image": name in DIR}; without "image" the
pictures of DIR are taken in the order of their names.  `check(prompt, image)` is the same check
for one picture and needs numpy alone; pictures may have any size.

How it works: the picture is cut into objects by their distance from the colour of its border.
An object's colour is the nearest named colour, its shape the best overlapping outline of the
ten, its place its centre of mass.
"""

import argparse
import json
import math
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
HERE = Path(__file__).resolve().parent
COLORS = {
    "red": (222, 48, 52),
    "orange": (246, 140, 38),
    "yellow": (250, 214, 52),
    "green": (66, 170, 78),
    "cyan": (66, 204, 214),
    "blue": (52, 100, 224),
    "purple": (140, 72, 198),
    "pink": (250, 142, 188),
    "brown": (138, 88, 54),
    "white": (248, 248, 250),
    "gray": (150, 152, 160),
    "black": (38, 38, 46),
}
SHAPES = ["circle", "square", "triangle", "star", "heart", "hexagon", "ring", "crescent", "cross", "diamond"]
SYNONYMS = {"violet": "purple", "grey": "gray", "golden": "yellow", "turquoise": "cyan", "disk": "circle"}
SYNONYMS |= {"ball": "circle", "tiny": "small", "little": "small", "big": "large", "huge": "large", "giant": "large"}
RELATIONS = {"left": (-1, 0), "right": (1, 0), "above": (0, -1), "below": (0, 1)}
RELATION_WORDS = {
    "to the left of": "left", "on the left of": "left", "left of": "left",
    "to the right of": "right", "on the right of": "right", "right of": "right",
    "above": "above", "over": "above", "on top of": "above",
    "below": "below", "under": "below", "beneath": "below",
    "inside": "inside", "within": "inside", "in": "inside",
    "next to": "beside", "beside": "beside", "near": "beside", "and": "and",
}  # fmt: skip
PLACES = {
    "on the left": (-1, 0), "on the right": (1, 0), "at the top": (0, -1), "at the bottom": (0, 1),
    "in the top left corner": (-1, -1), "in the top right corner": (1, -1),
    "in the bottom left corner": (-1, 1), "in the bottom right corner": (1, 1),
    "in the center": (0, 0), "in the middle": (0, 0),
}  # fmt: skip
NUMBERS = {"two": 2, "three": 3, "four": 4}
HOLDERS = ["circle", "square", "hexagon", "heart", "diamond"]


# ---------------------------------------------------------------- what a prompt asks for


@dataclass
class Thing:
    """One object of a prompt; None is what the prompt leaves open."""

    shape: str
    color: str | None = None
    size: str | None = None
    place: tuple[int, int] | None = None


@dataclass
class Wanted:
    """What a prompt says: one thing, two with a relation, or `count` equal ones (None: some)."""

    things: list[Thing] = field(default_factory=list)
    relation: str | None = None
    count: int | None = 1
    background: str | None = None


def _thing(text: str) -> tuple[Thing, int | None]:
    place = None
    for words, where in PLACES.items():
        if re.search(rf"\b{words}\b", text):
            place, text = where, re.sub(rf"\b{words}\b", " ", text)
    thing = Thing("", place=place)
    count: int | None = 1
    for word in re.findall(r"[a-z]+", text):
        word = SYNONYMS.get(word, word)
        single = word[:-2] if word == "crosses" else word.removesuffix("s") if word != "cross" else word
        single = SYNONYMS.get(single, single)
        if word in NUMBERS:
            count = NUMBERS[word]
        elif word == "some":
            count = None
        elif word in COLORS:
            thing.color = word
        elif word in ("small", "large"):
            thing.size = word
        elif single in SHAPES:
            thing.shape = single
    if not thing.shape:
        raise ValueError(f"no plain shape in {text!r}: name one of {', '.join(SHAPES)}")
    return thing, count


def parse(prompt: str) -> Wanted:
    """The parts of a prompt in the grammar of the training captions; ValueError for other prompts."""
    text, want = " ".join(re.findall(r"[a-z]+", prompt.lower())), Wanted()
    names = "|".join([*COLORS, *(k for k, v in SYNONYMS.items() if v in COLORS)])
    if found := re.search(rf"\b(?:on|against|with) an? ({names}) background\b", text):
        want.background = SYNONYMS.get(found[1], found[1])
        text = text[: found.start()] + " " + text[found.end() :]
    text = re.sub(r"\b(a row of|in a row)\b", " ", text)
    text = " ".join(text.split())
    for words in sorted(RELATION_WORDS, key=len, reverse=True):
        # "in" alone may belong to "in the center", "on the left" to a place
        around = re.split(rf"\b{words} (?=(?:an?|the) (?!top|bottom|left|right|center|middle))", text, maxsplit=1)
        if len(around) == 2:
            want.relation = RELATION_WORDS[words]
            want.things = [_thing(part)[0] for part in around]
            return want
    thing, want.count = _thing(text)
    want.things = [thing]
    return want


# ---------------------------------------------------------------- what a picture shows


def lab(rgb: Array | tuple[int, ...]) -> Array:
    """CIE L*a*b* (D65) of sRGB values 0..255, over the last axis."""
    c = np.asarray(rgb, np.float64) / 255
    c = np.where(c > 0.04045, ((c + 0.055) / 1.055) ** 2.4, c / 12.92)
    m = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = c @ m.T / np.array([0.95047, 1.0, 1.08883])
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], -1)


NAMES = list(COLORS)
PALETTE = lab(np.array([COLORS[n] for n in NAMES]))


def name_of(rgb: Array) -> str:
    """The nearest named colour."""
    return NAMES[int(((PALETTE - lab(rgb)) ** 2).sum(-1).argmin())]


def _polygon(points: list[tuple[float, float]], x: Array, y: Array) -> Array:
    inside = np.zeros(x.shape, bool)
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True):
        cut = (ay > y) != (by > y)
        inside ^= cut & (x < (bx - ax) * (y - ay) / (by - ay if by != ay else 1e-9) + ax)
    return inside


def _ngon(n: int, radius: float, start: float) -> list[tuple[float, float]]:
    angles = [start + 2 * math.pi * i / n for i in range(n)]
    return [(radius * math.cos(a), radius * math.sin(a)) for a in angles]


def outline(kind: str, x: Array, y: Array) -> Array:
    """True inside the shape; x right, y down, about the unit circle."""
    r = np.hypot(x, y)
    if kind == "circle":
        return r < 0.92
    if kind == "square":
        return (abs(x) < 0.82) & (abs(y) < 0.82)
    if kind == "triangle":
        return _polygon([(0, -0.95), (0.95, 0.74), (-0.95, 0.74)], x, y)
    if kind == "star":
        tips, notches = _ngon(5, 0.97, -math.pi / 2), _ngon(5, 0.46, -math.pi / 2 + math.pi / 5)
        return _polygon([p for pair in zip(tips, notches, strict=True) for p in pair], x, y)
    if kind == "heart":
        u, v = abs(x) / 1.5, (0.86 - y) / 1.5
        return np.where(u + v > 1, np.hypot(u - 0.25, v - 0.75) < 0.3536, u < v)
    if kind == "hexagon":
        return _polygon(_ngon(6, 0.93, 0.0), x, y)
    if kind == "ring":
        return abs(r - 0.7) < 0.21
    if kind == "crescent":
        return (r < 0.92) & (np.hypot(x - 0.42, y + 0.1) > 0.72)
    if kind == "cross":
        return ((abs(x) < 0.9) & (abs(y) < 0.3)) | ((abs(y) < 0.9) & (abs(x) < 0.3))
    if kind == "diamond":
        return abs(x) / 0.72 + abs(y) / 0.98 < 1
    raise KeyError(kind)


def _templates() -> tuple[list[str], Array]:
    """Outlines of equal area around their centres of mass, at small tilts."""
    fine = np.linspace(-1, 1, 201)
    gx, gy = np.meshgrid(fine, fine)
    coarse = (np.arange(72) + 0.5) / 72 * 2.8 - 1.4
    px, py = np.meshgrid(coarse, coarse)
    names, masks = [], []
    for kind in SHAPES:
        for tilt in (-0.16, -0.08, 0, 0.08, 0.16):
            c, s = math.cos(tilt), math.sin(tilt)
            m = outline(kind, c * gx + s * gy, c * gy - s * gx)
            side = math.sqrt(m.mean() * 4)
            x, y = px * side + gx[m].mean(), py * side + gy[m].mean()
            masks.append(outline(kind, c * x + s * y, c * y - s * x))
            names.append(kind)
    return names, np.array(masks)


TEMPLATES = _templates()


def shape_of(mask: Array) -> str:
    """The best overlapping outline, or "nothing" for fewer than 12 pixels."""
    ys, xs = np.nonzero(mask)
    if len(xs) < 12:
        return "nothing"
    g = ((np.arange(72) + 0.5) / 72 * 2.8 - 1.4) * math.sqrt(len(xs))
    xi, yi = np.meshgrid(np.rint(g + xs.mean()).astype(int), np.rint(g + ys.mean()).astype(int))
    ok = (xi >= 0) & (yi >= 0) & (xi < mask.shape[1]) & (yi < mask.shape[0])
    m = np.zeros(xi.shape, bool)
    m[ok] = mask[yi[ok], xi[ok]]
    names, masks = TEMPLATES
    return names[int(((masks & m).sum((1, 2)) / np.maximum((masks | m).sum((1, 2)), 1)).argmax())]


def components(mask: Array, least: float) -> list[Array]:
    """Connected areas (eight neighbours) of at least `least` pixels, largest first."""
    label = np.where(mask, np.arange(1, mask.size + 1).reshape(mask.shape), 0)
    while True:
        p = np.pad(label, 1)
        h, w = mask.shape
        best = np.max([p[1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w] for dy in (-1, 0, 1) for dx in (-1, 0, 1)], axis=0)
        best = np.where(mask, best, 0)
        if (best == label).all():
            break
        label = best
    ids, n = np.unique(label[mask], return_counts=True)
    return [label == ids[i] for i in np.argsort(-n) if n[i] >= least]


def prepare(image: Array) -> Array:
    """[h, w, 3 or 4] uint8 to float RGB of 128 pixels or more: small pictures are enlarged (bilinear)."""
    img = np.asarray(image)[..., :3].astype(np.float64)
    if img.ndim != 3 or img.shape[2] != 3:
        raise ValueError(f"a picture has the shape [height, width, 3], this one has {np.shape(image)}")
    times = max(1, math.ceil(128 / min(img.shape[:2])))
    for axis in (0, 1):
        n = img.shape[axis]
        at = np.clip((np.arange(n * times) + 0.5) / times - 0.5, 0, n - 1)
        low = np.minimum(at.astype(int), max(n - 2, 0))
        part = (at - low).reshape([-1 if a == axis else 1 for a in range(3)])
        img = img.take(low, axis) * (1 - part) + img.take(np.minimum(low + 1, n - 1), axis) * part
    return img


def foreground(img: Array) -> tuple[Array, Array]:
    """The border's colour and the mask of all that differs from it (also from a gradient along the rows)."""
    k = max(img.shape[0] // 32, 1)
    left, right = np.median(img[:, :k], 1), np.median(img[:, -k:], 1)
    rows = np.median(np.concatenate([img[:, :k], img[:, -k:]], 1), 1)
    flat = np.median(np.concatenate([left, right, img[:k].mean(0), img[-k:].mean(0)]), 0)
    # A soft background changes from top to bottom; where an object touches the side, use the whole border.
    steady = np.sqrt(((lab(left) - lab(right)) ** 2).sum(-1)) < 12
    near = np.sqrt(((lab(rows) - lab(flat)) ** 2).sum(-1)) < 30
    back = np.where((steady & near)[:, None], rows, flat)
    return flat, np.sqrt(((lab(img) - lab(back)[:, None]) ** 2).sum(-1)) > 23


def core(img: Array, mask: Array) -> Array:
    """The median colour of the mask's inner pixels."""
    p = np.pad(mask, 2)
    inner = mask & p[:-4, 2:-2] & p[4:, 2:-2] & p[2:-2, :-4] & p[2:-2, 4:]
    return np.asarray(np.median(img[inner if inner.sum() > 8 else mask], 0))


@dataclass
class Found:
    """One object in a picture; x and y from -1 to 1, `extent` in the same unit."""

    color: str
    shape: str
    x: float
    y: float
    extent: float


def describe(img: Array, mask: Array, back: Array) -> Found:
    """What the pixels of `mask` show on the background colour `back`."""
    mask = sharpen(img, mask, back)
    ys, xs = np.nonzero(mask)
    h, w = mask.shape
    extent = max(np.ptp(ys) / h, np.ptp(xs) / w) * 2
    return Found(name_of(core(img, mask)), shape_of(mask), xs.mean() / w * 2 - 1, ys.mean() / h * 2 - 1, float(extent))


def sharpen(img: Array, mask: Array, back: Array) -> Array:
    """The part of `mask` that is nearer to its own colour than to the background's: no blur, no shadow."""
    way = core(img, mask) - back
    nearer = mask & (((img - back) * way).sum(-1) > 0.5 * (way * way).sum())
    return nearer if nearer.sum() > 0.5 * mask.sum() else mask


def _like(found: Found, thing: Thing) -> float:
    return float(thing.color in (None, found.color)) + float(thing.shape == found.shape)


def _nested(img: Array, fg: Array, inner: Thing, outer: Thing) -> dict[str, float]:
    none = {"colour": 0.0, "shape": 0.0, "position": 0.0}
    parts = components(fg, img.shape[0] * img.shape[1] * 0.004)
    if not parts:
        return none
    hull = parts[0]
    if outer.shape == "ring" and len(parts) > 1:  # what shows through the ring's hole is the background
        a, b = parts[1], hull
        return _inside(a, b, b, img, inner, outer)
    for gap in components(~hull, 1):  # fill holes
        ys, xs = np.nonzero(gap)
        if min(ys.min(), xs.min()) > 0 and ys.max() < img.shape[0] - 1 and xs.max() < img.shape[1] - 1:
            hull = hull | gap
    pix = lab(img)
    seed = pix[hull & ~_shrunk(hull, max(2, round(math.sqrt(hull.sum()) * 0.08)))]
    rim = np.median(seed, 0)
    inside = components(hull & (np.sqrt(((pix - rim) ** 2).sum(-1)) > 30) & _shrunk(hull, 2), hull.sum() * 0.01)
    if not inside:
        return none | {"shape": 0.5 * (shape_of(hull) == outer.shape)}
    return _inside(inside[0], hull & ~inside[0], hull, img, inner, outer)


def _inside(a: Array, b: Array, hull: Array, img: Array, inner: Thing, outer: Thing) -> dict[str, float]:
    """Compares the areas of the inner (a) and the outer object (b, with its holes filled `hull`) with two things."""
    (ay, ax), (hy, hx) = np.nonzero(a), np.nonzero(hull)
    within = hy.min() < ay.min() and ay.max() < hy.max() and hx.min() < ax.min() and ax.max() < hx.max()
    colors = [thing.color in (None, name_of(core(img, m))) for thing, m in ((inner, a), (outer, b))]
    shapes = [shape_of(m) == thing.shape for thing, m in ((inner, a), (outer, hull))]
    return {"colour": sum(colors) / 2, "shape": sum(shapes) / 2, "position": float(within)}


def _shrunk(mask: Array, n: int) -> Array:
    for _ in range(n):
        p = np.pad(mask, 1)
        mask = mask & p[:-2, 1:-1] & p[2:, 1:-1] & p[1:-1, :-2] & p[1:-1, 2:]
    return mask


def check(prompt: str, image: Array) -> dict[str, float]:
    """Which parts of a prompt a picture fulfils.

    image: [height, width, 3] uint8.  The values are 1 (right), 0 (wrong) or between for the right part of
    several objects; the keys are those of "background", "count", "colour", "shape", "size" and "position"
    that the prompt speaks of, and "everything".  ValueError: the prompt is not about plain shapes.
    """
    want = parse(prompt)
    img = prepare(image)
    back, fg = foreground(img)
    result: dict[str, float] = {}
    if want.background:
        result["background"] = float(name_of(back) == want.background)
    if want.relation == "inside":
        result |= _nested(img, fg, *want.things)
    else:
        found = [describe(img, m, back) for m in components(fg, fg.size * 0.004)]
        total = len(want.things) if want.relation else want.count
        result["count"] = float(len(found) == total if total else len(found) > 1)
        if not want.relation:
            result |= _single(found, want)
        else:
            result |= _pair(found, want)
    result["everything"] = float(min(result.values()) == 1)
    return result


def _single(found: list[Found], want: Wanted) -> dict[str, float]:
    thing, n = want.things[0], max(len(found), 1)
    result = {"shape": sum(f.shape == thing.shape for f in found) / n}
    if thing.color:
        result["colour"] = sum(f.color == thing.color for f in found) / n
    if thing.size and thing.place is None:  # near an edge large things are drawn smaller
        right = [f.extent < 0.66 if thing.size == "small" else f.extent > 0.92 for f in found]
        result["size"] = sum(right) / n
    if thing.place is not None:
        result["position"] = float(bool(found) and _at(found[0], thing.place))
    return result


def _at(f: Found, place: tuple[int, int]) -> bool:
    return all(v * w > 0.2 if w else abs(v) < 0.3 for v, w in zip((f.x, f.y), place, strict=True))


def _pair(found: list[Found], want: Wanted) -> dict[str, float]:
    a, b = want.things
    pairs = [(p, q) for p in found[:4] for q in found[:4] if p is not q]
    if not pairs:
        return {"colour": 0.0, "shape": 0.0, "position": 0.0}
    dx, dy = RELATIONS.get(want.relation or "", (0, 0))

    def right_way(p: Found, q: Found) -> bool:
        ux, uy = p.x - q.x, p.y - q.y
        ok = all(_at_side(f, t) for f, t in ((p, a), (q, b)))
        if dx or dy:
            along, across = (ux * dx, uy) if dx else (uy * dy, ux)
            ok = ok and along > 0.2 and along > abs(across)
        return ok

    p, q = max(pairs, key=lambda pq: (_like(pq[0], a) + _like(pq[1], b), right_way(*pq)))
    return {
        "colour": 0.5 * (a.color in (None, p.color)) + 0.5 * (b.color in (None, q.color)),
        "shape": 0.5 * (p.shape == a.shape) + 0.5 * (q.shape == b.shape),
        "position": float(right_way(p, q)),
    }


def _at_side(f: Found, thing: Thing) -> bool:
    return thing.place is None or all(v * w > 0.1 for v, w in zip((f.x, f.y), thing.place, strict=True) if w)


# ---------------------------------------------------------------- prompts, samples, reports


def _far(a: str, b: str) -> bool:
    return bool(np.sqrt(((lab(COLORS[a]) - lab(COLORS[b])) ** 2).sum()) > 42)


def _art(text: str) -> str:
    return ("an " if text[0] in "aeiou" else "a ") + text


def plan(rng: random.Random, count: int) -> list[tuple[str, str]]:
    """`count` random (family, prompt) of each family; colours that lie side by side are well apart."""

    def pick(*taken: str) -> str:
        return rng.choice([c for c in NAMES if all(_far(c, t) for t in taken)])

    def one(kind: str) -> str:
        color, shape = rng.choice(NAMES), rng.choice(SHAPES)
        size = rng.choice(["small ", "large "]) if kind == "sized" else ""
        text = _art(f"{size}{color} {shape}")
        if kind == "placed":
            text += " " + rng.choice([p for p in PLACES if p != "in the middle"])
        return text if kind == "bare" else f"{text} on {_art(pick(color))} background"

    def two() -> str:
        a, b = rng.choice(NAMES), rng.choice(NAMES)
        relation = rng.choice(["to the left of", "to the right of", "above", "below"])
        first, second = _art(f"{a} {rng.choice(SHAPES)}"), _art(f"{b} {rng.choice(SHAPES)}")
        return f"{first} {relation} {second} on {_art(pick(a, b))} background"

    def inside() -> str:
        b = rng.choice(NAMES)
        a = pick(b)
        first, second = _art(f"{a} {rng.choice(SHAPES)}"), _art(f"{b} {rng.choice(HOLDERS)}")
        return f"{first} inside {second} on {_art(pick(a, b))} background"

    def number() -> str:
        color, shape = rng.choice(NAMES), rng.choice(SHAPES)
        plural = shape + ("es" if shape == "cross" else "s")
        return f"{rng.choice(list(NUMBERS))} {color} {plural} on {_art(pick(color))} background"

    families = {
        "one shape": lambda: one("bare"),
        "one shape, background": lambda: one("plain"),
        "one shape, sized": lambda: one("sized"),
        "one shape, placed": lambda: one("placed"),
        "two shapes": two,
        "inside": inside,
        "counting": number,
    }
    return [(name, make()) for name, make in families.items() for _ in range(count)]


def report(jobs: list[tuple[str, str]], images: list[Array]) -> tuple[dict[str, dict[str, float]], list[Any]]:
    """Means of every kind of check for each family, and [prompt, what is wrong] of the failures."""
    table: dict[str, dict[str, list[float]]] = {}
    wrong = []
    for (family, prompt), image in zip(jobs, images, strict=True):
        got = check(prompt, image)
        for key, value in got.items():
            table.setdefault(family, {}).setdefault(key, []).append(value)
        if got["everything"] < 1:
            wrong.append([prompt, [k for k, v in got.items() if v < 1 and k != "everything"]])
    means = {f: {k: round(float(np.mean(v)), 4) for k, v in t.items()} for f, t in table.items()}
    for f, t in table.items():
        means[f]["pictures"] = len(t["everything"])
    return means, wrong


def show(table: dict[str, dict[str, float]]) -> None:
    """Prints a table of `report`."""
    for family, row in table.items():
        print(f"{family:24s}", "  ".join(f"{k} {v:.3f}" if k != "pictures" else f"({v:.0f})" for k, v in row.items()))


def sample(model: Path, prompts: list[str], seeds: list[int], steps: int, guidance: float, batch: int) -> list[Array]:
    """Pictures from diffusers in float32 on the CPU, as uint8 arrays."""
    import torch
    from diffusers import StableDiffusionPipeline

    pipe = StableDiffusionPipeline.from_pretrained(model, safety_checker=None, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    out: list[Array] = []
    for i in range(0, len(prompts), batch):
        part = prompts[i : i + batch]
        gens = [torch.Generator("cpu").manual_seed(s) for s in seeds[i : i + batch]]
        got = pipe(part, num_inference_steps=steps, guidance_scale=guidance, generator=gens, output_type="np").images
        out += list((got * 255).round().astype(np.uint8))
        print(f"{len(out)} of {len(prompts)}", flush=True)
    return out


def contact_sheet(images: list[Array], labels: list[str], columns: int, path: Path) -> None:
    """All pictures with their prompts, green where the check is content and red where it is not."""
    from PIL import Image, ImageDraw

    side, text = 128, 44
    rows = (len(images) + columns - 1) // columns
    sheet = Image.new("RGB", (columns * (side + 8) + 8, rows * (side + text) + 8), (255, 255, 255))
    draw = ImageDraw.Draw(sheet)
    for i, (img, label) in enumerate(zip(images, labels, strict=True)):
        x, y = 8 + (i % columns) * (side + 8), 8 + (i // columns) * (side + text)
        sheet.paste(Image.fromarray(img).resize((side, side), Image.Resampling.NEAREST), (x, y))
        try:
            good = check(label, img)["everything"] == 1
        except ValueError:
            good = False
        lines = re.findall(r".{1,24}(?:\s|$)", label)
        for k, line in enumerate(lines[:4]):
            draw.text((x, y + side + 9 * k), line, fill=(0, 110, 0) if good else (190, 0, 0), font_size=9)
    sheet.save(path, optimize=True)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", type=Path, default=HERE)
    ap.add_argument("--out", type=Path, default=Path("."))
    ap.add_argument("--count", type=int, default=40, help="pictures of each family")
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--guidance", type=float, default=5.0)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--seed", type=int, default=1234)
    ap.add_argument("--images", type=Path, help="check the pictures in this folder")
    ap.add_argument("--prompts", type=Path, help="JSON list of {prompt, image?, seed?}")
    args = ap.parse_args()
    if args.prompts:
        entries = json.loads(args.prompts.read_text())
        jobs = [("prompts", e["prompt"]) for e in entries]
        seeds = [int(e.get("seed", args.seed * 100 + i)) for i, e in enumerate(entries)]
    else:
        entries, jobs = [], plan(random.Random(args.seed), args.count)
        seeds = [args.seed * 100 + i for i in range(len(jobs))]
    if args.images:
        if not entries:
            ap.error("--images needs --prompts")
        from PIL import Image

        names = sorted(p.name for p in args.images.iterdir() if p.suffix.lower() in (".png", ".jpg", ".webp"))
        names = [e.get("image", names[i] if i < len(names) else "") for i, e in enumerate(entries)]
        images = [np.asarray(Image.open(args.images / n).convert("RGB")) for n in names]
    else:
        images = sample(args.model, [p for _, p in jobs], seeds, args.steps, args.guidance, args.batch)
    table, wrong = report(jobs, images)
    show(table)
    args.out.mkdir(parents=True, exist_ok=True)
    contact_sheet(images[:96], [p for _, p in jobs[:96]], 12, args.out / "samples.png")
    found = dict(table=table, wrong=wrong, steps=args.steps, guidance=args.guidance, seed=args.seed)
    (args.out / "eval.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
