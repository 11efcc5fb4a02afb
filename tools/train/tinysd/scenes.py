"""Random scenes with captions.

A scene is a background plus up to four objects.  `sample_scene` draws one and
words it; `pack` turns a list of scenes into flat arrays that `render.py` can
draw in large batches.  Coordinates run from -1 to 1, x to the right and y
down.  Nothing here needs more than the standard library and numpy.
"""
import random

import numpy as np

SLOTS = 4

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
COLOR_NAMES = list(COLORS)
# Other words that people use for the same colours.
COLOR_WORDS = {"purple": ["violet"], "gray": ["grey"], "yellow": ["golden"],
               "cyan": ["turquoise"]}

SHAPES = ["circle", "square", "triangle", "star", "heart", "hexagon", "ring",
          "crescent", "cross", "diamond"]
THINGS = ["house", "tree", "pine", "sun", "moon", "cloud", "boat", "flower",
          "face", "cat", "dog", "bird", "fish", "butterfly", "car", "rocket",
          "balloon", "mushroom", "apple", "icecream", "snowman", "robot",
          "planet"]
KINDS = SHAPES + THINGS
KIND_ID = {k: i for i, k in enumerate(KINDS)}

# words: singular and plural forms; colors: what it looks like when no colour
# is given; home: where it stands in a landscape.
INFO = {
    "circle": (["circle", "disk", "ball"], ["circles", "disks", "balls"]),
    "square": (["square"], ["squares"]),
    "triangle": (["triangle"], ["triangles"]),
    "star": (["star"], ["stars"]),
    "heart": (["heart"], ["hearts"]),
    "hexagon": (["hexagon"], ["hexagons"]),
    "ring": (["ring"], ["rings"]),
    "crescent": (["crescent"], ["crescents"]),
    "cross": (["cross"], ["crosses"]),
    "diamond": (["diamond"], ["diamonds"]),
    "house": (["house", "cottage"], ["houses", "cottages"]),
    "tree": (["tree"], ["trees"]),
    "pine": (["pine tree", "fir tree"], ["pine trees", "fir trees"]),
    "sun": (["sun"], ["suns"]),
    "moon": (["moon"], ["moons"]),
    "cloud": (["cloud"], ["clouds"]),
    "boat": (["boat", "sailboat", "ship"], ["boats", "sailboats", "ships"]),
    "flower": (["flower"], ["flowers"]),
    "face": (["face"], ["faces"]),
    "cat": (["cat", "kitten"], ["cats", "kittens"]),
    "dog": (["dog", "puppy"], ["dogs", "puppies"]),
    "bird": (["bird"], ["birds"]),
    "fish": (["fish"], ["fish"]),
    "butterfly": (["butterfly"], ["butterflies"]),
    "car": (["car"], ["cars"]),
    "rocket": (["rocket", "spaceship"], ["rockets", "spaceships"]),
    "balloon": (["balloon"], ["balloons"]),
    "mushroom": (["mushroom"], ["mushrooms"]),
    "apple": (["apple"], ["apples"]),
    "icecream": (["ice cream", "ice cream cone"], ["ice creams", "ice cream cones"]),
    "snowman": (["snowman"], ["snowmen"]),
    "robot": (["robot"], ["robots"]),
    "planet": (["planet"], ["planets"]),
}
DEFAULT_COLORS = {
    "house": ["yellow", "white", "orange", "pink", "blue", "red"],
    "tree": ["green"], "pine": ["green"], "sun": ["yellow"],
    "moon": ["yellow"], "cloud": ["white"],
    "boat": ["red", "blue", "brown", "green"],
    "flower": ["pink", "red", "purple", "yellow", "white", "orange"],
    "face": ["yellow"], "cat": ["orange", "gray", "black"],
    "dog": ["brown", "white", "orange"],
    "bird": ["blue", "red", "yellow"], "fish": ["orange", "blue"],
    "butterfly": ["orange", "purple", "pink", "blue"],
    "car": ["red", "blue", "yellow"], "rocket": ["white", "red"],
    "balloon": ["red", "blue", "yellow", "pink"],
    "mushroom": ["red"], "apple": ["red", "green"],
    "icecream": ["pink", "white", "brown"], "snowman": ["red", "blue", "green"],
    "robot": ["gray", "cyan"], "planet": ["orange", "purple", "cyan"],
}
SKY_HOME = {"sun", "moon", "cloud", "bird", "butterfly", "rocket", "balloon", "planet"}
SEA_HOME = {"boat", "fish"}
EXPRESSIONS = [["smiling", "happy"], ["sad", "unhappy"], ["surprised", "shocked"],
               ["winking"]]

PLACES = ["sky", "sea", "meadow", "snow", "desert", "mountains", "forest"]
TIMES = ["day", "sunset", "night"]
BACKGROUNDS = ["solid", "gradient", "soft"] + PLACES + ["space", "underwater"]
BG_ID = {k: i for i, k in enumerate(BACKGROUNDS)}

PLACE_WORDS = {
    "sky": ["in the sky", "in the clouds"],
    "sea": ["on the sea", "at sea", "on the ocean", "on the water"],
    "meadow": ["in a meadow", "on the grass", "on a green hill", "in a field",
               "in a garden"],
    "snow": ["in the snow", "on a snowy hill", "in winter"],
    "desert": ["in the desert", "on the sand", "on a beach"],
    "mountains": ["in the mountains", "in front of mountains"],
    "forest": ["in a forest", "in the woods"],
    "space": ["in space", "in outer space", "among the stars"],
    "underwater": ["underwater", "under the sea", "under water"],
}
PLACE_NOUNS = {
    "sky": {"day": ["a blue sky", "a sky with clouds", "the sky"],
            "sunset": ["a sunset", "a sunset sky", "the sky at sunset"],
            "night": ["a night sky", "a starry night", "a night sky with stars",
                      "the stars at night"]},
    "sea": ["the sea", "the ocean", "the sea with waves"],
    "meadow": ["a meadow", "a green hill", "a field", "a landscape with grass"],
    "snow": ["a snowy landscape", "a snowy hill", "snow"],
    "desert": ["a desert", "sand dunes", "a beach"],
    "mountains": ["mountains", "snowy mountains", "a mountain landscape"],
    "forest": ["a forest", "the woods", "pine trees in a forest"],
    "space": ["space", "outer space", "stars in space"],
    "underwater": ["the sea floor", "an underwater scene", "bubbles underwater"],
}
TIME_WORDS = {
    "day": ["", "", "", "on a sunny day", "by day", "during the day"],
    "sunset": ["at sunset", "at sunset", "at dusk", "in the evening"],
    "night": ["at night", "at night", "under the stars", "in the moonlight"],
}
SMALL = ["small", "small", "tiny", "little"]
LARGE = ["large", "large", "big", "huge", "giant"]
NUMBERS = {2: "two", 3: "three", 4: "four"}
PREFIXES = ["a picture of", "a drawing of", "an illustration of", "an image of",
            "a photo of", "a painting of", "a cartoon of", "a scene with"]
SUFFIXES = [", digital art", ", illustration", ", cartoon", ", highly detailed",
            ", beautiful", ", cute", ", flat design", ", colorful", ", masterpiece",
            ", 4k"]
FLUFF = ["cute", "beautiful", "pretty", "nice", "lovely"]


def article(text):
    return ("an " if text[0] in "aeiou" else "a ") + text


EXTRAS = {"placed": 0.25, "soft": 0.42, "second colour": 0.3, "texture": 0.14, "expressions": [0, 0, 0, 1, 2, 3],
          "synonyms": 0.35, "gradients": 0.15, "noise": 1.0}


class Obj:
    """One object: what it is, how it is painted and the words for it."""

    def __init__(self, rng, kind, size=None, color="auto", style=None, texture=None):
        self.kind = kind
        self.rng = rng
        self.size_word = None
        self.size = size
        self.colored = True
        if color == "auto":
            plain = kind in SHAPES
            self.colored = rng.random() < (0.93 if plain else 0.62)
            if self.colored:
                color = rng.choice(COLOR_NAMES)
                if not plain and rng.random() < 0.25:
                    color = rng.choice(DEFAULT_COLORS[kind])
            else:
                color = rng.choice(COLOR_NAMES if plain else DEFAULT_COLORS[kind])
        elif color is None:
            self.colored = False
            color = rng.choice(COLOR_NAMES if kind in SHAPES else DEFAULT_COLORS[kind])
        self.color = color
        self.color2 = None
        self.with_color2 = False
        if kind in ("house", "boat") and rng.random() < EXTRAS["second colour"]:
            self.with_color2 = True
            self.color2 = rng.choice([c for c in COLOR_NAMES if c != color])
        self.style = style
        if kind == "face" and style is None:
            self.style = rng.choice(EXTRAS["expressions"])
        if kind == "moon" and style is None:
            self.style = rng.choice([0, 1])
        if self.style is None:
            self.style = 0
        self.texture = 0
        if texture is not None:
            self.texture = texture
        elif kind in SHAPES and kind not in ("ring", "crescent") and rng.random() < EXTRAS["texture"]:
            self.texture = rng.choice([1, 2])
        self.x = self.y = 0.0
        self.s = 0.4
        self.rot = 0.0
        self.r = [rng.random() for _ in range(4)]
        if kind in SHAPES:
            self.rot = rng.uniform(-0.12, 0.12)
        elif kind in ("rocket", "fish", "butterfly", "balloon", "planet"):
            self.rot = rng.uniform(-0.15, 0.15)

    def color_word(self):
        words = COLOR_WORDS.get(self.color)
        if words and self.rng.random() < 0.15:
            return self.rng.choice(words)
        return self.color

    def words(self, plural=False):
        """The noun phrase without its article."""
        rng = self.rng
        out = []
        if self.size_word:
            out.append(self.size_word)
        noun = rng.choice(INFO[self.kind][1 if plural else 0]) \
            if rng.random() < EXTRAS["synonyms"] else INFO[self.kind][1 if plural else 0][0]
        adj = []
        if self.kind == "face":
            expr = rng.choice(EXPRESSIONS[self.style])
            if self.style == 0 and self.color == "yellow" and rng.random() < 0.3:
                noun = ("smileys" if plural else "smiley") + \
                    ("" if rng.random() < 0.5 else (" faces" if plural else " face"))
                noun = noun.replace("smileys faces", "smiley faces")
            else:
                adj.append(expr)
        if self.kind == "moon" and self.style == 1:
            adj.append("full")
        if self.texture == 1:
            adj.append("striped")
        elif self.texture == 2:
            adj.append(rng.choice(["dotted", "spotted"]))
        tail = ""
        if self.kind == "snowman":
            if self.colored:
                tail = " with %s scarf" % ("scarves" if False else article(self.color_word()))
        elif self.colored:
            adj.append(self.color_word())
            rng.shuffle(adj)
        if self.with_color2 and not plural:
            part = {"house": "roof", "boat": "sail"}[self.kind]
            tail = " with %s %s" % (article(self.color2), part)
        if rng.random() < 0.02:
            out.append(rng.choice(FLUFF))
        return " ".join(out + adj + [noun]) + tail

    def phrase(self):
        if self.kind in ("sun", "moon") and self.rng.random() < 0.3:
            return "the " + self.words()
        return article(self.words())


def clamp(v, lo, hi):
    return max(lo, min(hi, v))


def pick_kind(rng, plain=0.5, among=None):
    if among is not None:
        return rng.choice(among)
    return rng.choice(SHAPES) if rng.random() < plain else rng.choice(THINGS)


def set_size(rng, o, scale=1.0, say=0.35):
    """Draws a size; sometimes an extreme one, which is then put into words."""
    u = rng.random()
    if u < say / 2:
        o.size_word, o.s = rng.choice(SMALL), rng.uniform(0.19, 0.25) * scale
    elif u < say:
        o.size_word, o.s = rng.choice(LARGE), rng.uniform(0.56, 0.66) * scale
    else:
        o.s = rng.uniform(0.34, 0.48) * scale


def place_inside(rng, o, lo=-1.0, hi=1.0):
    m = o.s * 1.06
    o.x = rng.uniform(lo + m, hi - m) if hi - lo > 2 * m else (lo + hi) / 2
    o.y = rng.uniform(lo + m, hi - m) if hi - lo > 2 * m else (lo + hi) / 2


def contrast(a, b):
    """Rough visible difference between two named colours."""
    ca, cb = COLORS[a], COLORS[b]
    return sum(abs(x - y) for x, y in zip(ca, cb))


def backdrop(rng, objs):
    """A plain background and its words ('' when it stays unsaid)."""
    u = rng.random()
    used = [o.color for o in objs]
    free = [c for c in COLOR_NAMES if all(contrast(c, k) > 120 for k in used)] or \
        [c for c in COLOR_NAMES if c not in used]
    if u < EXTRAS["soft"]:
        return ("soft", "day", None, None), ""
    if u < 1 - EXTRAS["gradients"]:
        c = rng.choice(free)
        w = rng.choice(COLOR_WORDS[c]) if c in COLOR_WORDS and rng.random() < 0.1 else c
        return ("solid", "day", c, None), rng.choice([
            "on %s background", "on %s background", "against %s background",
            "with %s background"]) % article(w)
    a, b = rng.choice(free), rng.choice(free)
    while b == a and len(free) > 1:
        b = rng.choice(free)
    return ("gradient", "day", a, b), rng.choice([
        "on a %s and %s gradient background", "on a %s and %s gradient",
        "on a %s to %s gradient background"]) % (a, b)


def scenery(rng, place=None, time=None):
    place = place or rng.choice(PLACES + ["space", "underwater"] +
                                [p for p in ("meadow", "sea", "sky") if p in PLACES])
    time = time or rng.choice(TIMES)
    if place == "space":
        time = "night"
    if place == "underwater":
        time = "day"
    return place, time


def scenery_words(rng, place, time):
    if place in ("space", "underwater"):
        return rng.choice(PLACE_WORDS[place])
    words = rng.choice(PLACE_WORDS[place])
    t = rng.choice(TIME_WORDS[time])
    if place == "sky" and time == "night":
        return rng.choice(["in the night sky", "in the night sky", "at night",
                           "in the sky at night", "under the stars"])
    if place == "sky" and time == "sunset" and rng.random() < 0.4:
        return rng.choice(["at sunset", "in the sunset sky", "in a sunset sky"])
    if place == "sky" and time == "day" and rng.random() < 0.4:
        return rng.choice(["in the blue sky", "in a blue sky"])
    return (words + " " + t).strip()


def tidy(rng, caption, background=""):
    """Joins caption and background and adds the fluff that people type."""
    text = (caption + " " + background).strip()
    u = rng.random() / max(EXTRAS["noise"], 1e-6)
    if u < 0.07:
        text = rng.choice(PREFIXES) + " " + text
    elif u < 0.10 and text.startswith(("a ", "an ")):
        text = text.split(" ", 1)[1]
    if rng.random() < 0.05 * EXTRAS["noise"]:
        text += rng.choice(SUFFIXES)
    if rng.random() < 0.05 * EXTRAS["noise"]:      # unknown words must do no harm
        words = text.split(" ")
        for _ in range(rng.randint(1, 2)):
            junk = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz")
                           for _ in range(rng.randint(2, 7)))
            words.insert(rng.randint(0, len(words)), junk)
        text = " ".join(words)
    return text


# ------------------------------------------------------------- scene families

CORNERS = {
    "on the left": (-0.52, 0), "on the right": (0.52, 0),
    "at the top": (0, -0.52), "at the bottom": (0, 0.52),
    "in the top left corner": (-0.52, -0.52), "in the top right corner": (0.52, -0.52),
    "in the bottom left corner": (-0.52, 0.52), "in the bottom right corner": (0.52, 0.52),
    "in the center": (0, 0), "in the middle": (0, 0),
}


def single(rng):
    o = Obj(rng, pick_kind(rng, 0.45))
    set_size(rng, o, 1.15)
    where = ""
    if rng.random() < EXTRAS["placed"]:
        where = rng.choice(list(CORNERS))
        x, y = CORNERS[where]
        o.s = min(o.s, 0.42)
        o.x = clamp(x + rng.uniform(-0.06, 0.06), -0.97 + o.s, 0.97 - o.s)
        o.y = clamp(y + rng.uniform(-0.06, 0.06), -0.97 + o.s, 0.97 - o.s)
    elif rng.random() < 0.8:
        o.x, o.y = rng.uniform(-0.12, 0.12), rng.uniform(-0.12, 0.12)
    else:
        place_inside(rng, o)
    bg, words = backdrop(rng, [o])

    def say():
        parts = [where, words] if rng.random() < 0.7 else [words, where]
        return tidy(rng, " ".join([o.phrase()] + [p for p in parts if p]))
    return bg, [o], say


RELATIONS = ["left", "right", "above", "below", "inside", "beside"]
REL_WORDS = {
    "left": ["to the left of", "left of", "on the left of"],
    "right": ["to the right of", "right of", "on the right of"],
    "above": ["above", "above", "over", "on top of"],
    "below": ["below", "below", "under", "beneath"],
    "inside": ["inside", "inside", "in", "within"],
    "beside": ["next to", "beside", "near"],
}
INVERSE = {"left": "right", "right": "left", "above": "below", "below": "above"}
HOLDERS = ["circle", "square", "hexagon", "heart", "diamond", "ring", "star", "triangle"]


def two(rng):
    rel = rng.choice(["left", "right", "above", "below", "left", "right", "above",
                      "below", "inside", "beside"])
    plain = 0.68
    if rel == "inside":
        b = Obj(rng, rng.choice(HOLDERS), texture=0)
        a = Obj(rng, pick_kind(rng, plain))
        while contrast(a.color, b.color) < 120:
            a = Obj(rng, pick_kind(rng, plain))
        b.s = rng.uniform(0.66, 0.82)
        b.x, b.y = rng.uniform(-0.1, 0.1), rng.uniform(-0.1, 0.1)
        fit = {"circle": 0.52, "square": 0.55, "hexagon": 0.5, "heart": 0.4,
               "diamond": 0.4, "ring": 0.4, "star": 0.3, "triangle": 0.3}[b.kind]
        a.s = b.s * fit * rng.uniform(0.8, 1.0)
        a.x, a.y = b.x, b.y + {"triangle": 0.28, "heart": -0.06, "star": 0.05}.get(b.kind, 0) * b.s
        if rng.random() < 0.25:
            b.size_word = rng.choice(LARGE)
        if rng.random() < 0.25:
            a.size_word = rng.choice(SMALL)
        order = [b, a]
    else:
        a, b = Obj(rng, pick_kind(rng, plain)), Obj(rng, pick_kind(rng, plain))
        for o in (a, b):
            u = rng.random()
            if u < 0.15:
                o.size_word, o.s = rng.choice(SMALL), rng.uniform(0.19, 0.24)
            elif u < 0.3:
                o.size_word, o.s = rng.choice(LARGE), rng.uniform(0.46, 0.52)
            else:
                o.s = rng.uniform(0.30, 0.42)
        gap = a.s + b.s + rng.uniform(0.04, 0.12)
        if gap + a.s + b.s > 1.94:
            k = 1.94 / (gap + a.s + b.s)
            a.s, b.s, gap = a.s * k, b.s * k, gap * k
        total = gap + a.s + b.s
        start = rng.uniform(-0.97, 0.97 - total) if rng.random() < 0.4 else -total / 2
        p, q = start + a.s, start + a.s + gap
        side = rng.uniform(-0.1, 0.1)
        jit = rng.uniform(-0.06, 0.06)
        sw = rel
        if rel == "beside":
            sw = rng.choice(["left", "right"])
        if sw in ("right", "below"):
            p, q = -p, -q
        if sw in ("left", "right"):
            a.x, b.x, a.y, b.y = p, q, side + jit, side - jit
        else:
            a.y, b.y, a.x, b.x = p, q, side + jit, side - jit
        order = [a, b]
    bg, words = backdrop(rng, [a, b])

    def say():
        u = rng.random()
        if rel in INVERSE and u < 0.2:
            text = "%s %s %s" % (b.phrase(), rng.choice(REL_WORDS[INVERSE[rel]]), a.phrase())
        elif rel in INVERSE and u < 0.32:
            first, second = {
                "left": ("on the left", "on the right"),
                "right": ("on the right", "on the left"),
                "above": ("at the top", "at the bottom"),
                "below": ("at the bottom", "at the top")}[rel]
            text = "%s %s and %s %s" % (a.phrase(), first, b.phrase(), second)
        elif rel == "beside" and u < 0.5:
            pair = [a, b]
            rng.shuffle(pair)
            text = "%s and %s" % (pair[0].phrase(), pair[1].phrase())
        elif rel == "beside" and u < 0.75:
            text = "%s %s %s" % (b.phrase(), rng.choice(REL_WORDS[rel]), a.phrase())
        elif rel != "inside" and u < 0.45:
            pair = [a, b]
            rng.shuffle(pair)
            text = "%s and %s" % (pair[0].phrase(), pair[1].phrase())
        else:
            text = "%s %s %s" % (a.phrase(), rng.choice(REL_WORDS[rel]), b.phrase())
        return tidy(rng, text, words)
    return bg, order, say


def three(rng):
    objs = [Obj(rng, pick_kind(rng, 0.7)) for _ in range(3)]
    mode = rng.choice(["row", "between", "stack", "free"])
    if mode == "between":
        twin = Obj(rng, objs[0].kind, color=objs[0].color, texture=objs[0].texture,
                   style=objs[0].style)
        twin.color2, twin.with_color2 = objs[0].color2, False
        objs[0].with_color2 = False
        objs[0].colored = True
        objs[2] = twin
    if mode in ("row", "between"):
        for i, o in enumerate(objs):
            o.s = rng.uniform(0.25, 0.31)
            o.x, o.y = (i - 1) * 0.63 + rng.uniform(-0.03, 0.03), rng.uniform(-0.08, 0.08)
    elif mode == "stack":
        for i, o in enumerate(objs):
            o.s = rng.uniform(0.24, 0.3)
            o.y, o.x = (i - 1) * 0.63 + rng.uniform(-0.03, 0.03), rng.uniform(-0.08, 0.08)
    else:
        spots = [(-0.48, -0.48), (0.48, -0.48), (-0.48, 0.48), (0.48, 0.48), (0, -0.48), (0, 0.48)]
        pick = rng.choice([(0, 1, 5), (2, 3, 4), (0, 1, 2), (1, 2, 3)])
        for i, o in zip(pick, objs):
            o.s = rng.uniform(0.27, 0.36)
            o.x = spots[i][0] + rng.uniform(-0.05, 0.05)
            o.y = spots[i][1] + rng.uniform(-0.05, 0.05)
    bg, words = backdrop(rng, objs)

    def say():
        a, b, c = objs
        if mode == "between":
            text = "%s between two %s" % (b.phrase(), a.words(True))
        elif mode == "stack" and rng.random() < 0.7:
            text = "%s above %s above %s" % (a.phrase(), b.phrase(), c.phrase())
        else:
            trio = [a, b, c]
            if mode != "row" or rng.random() < 0.5:
                rng.shuffle(trio)
            text = "%s, %s and %s" % tuple(o.phrase() for o in trio)
            if mode == "row" and trio == [a, b, c] and rng.random() < 0.4:
                text += " in a row"
        return tidy(rng, text, words)
    return bg, objs, say


def counted(rng):
    n = rng.choice([2, 2, 3, 3, 4])
    first = Obj(rng, pick_kind(rng, 0.55))
    first.with_color2 = False
    objs = [first]
    for _ in range(n - 1):
        o = Obj(rng, first.kind, color=first.color if first.colored else None,
                style=first.style, texture=first.texture)
        o.with_color2 = False
        objs.append(o)
    row = rng.random() < 0.5
    layouts = {
        2: [[(-0.46, 0), (0.46, 0)], [(-0.42, -0.4), (0.42, 0.4)], [(0.42, -0.4), (-0.42, 0.4)]],
        3: [[(-0.64, 0), (0, 0), (0.64, 0)], [(-0.46, 0.42), (0.46, 0.42), (0, -0.46)],
            [(-0.46, -0.42), (0.46, -0.42), (0, 0.46)]],
        4: [[(-0.73, 0), (-0.245, 0), (0.245, 0), (0.73, 0)],
            [(-0.46, -0.46), (0.46, -0.46), (-0.46, 0.46), (0.46, 0.46)]],
    }[n]
    spots = layouts[0] if row else rng.choice(layouts[1:])
    limit = {2: 0.4, 3: 0.29, 4: 0.225}[n] if row else {2: 0.38, 3: 0.38, 4: 0.37}[n]
    for o, (x, y) in zip(objs, spots):
        o.s = limit * rng.uniform(0.85, 1.0)
        o.x, o.y = x + rng.uniform(-0.03, 0.03), y + rng.uniform(-0.03, 0.03)
    bg, words = backdrop(rng, objs)

    def say():
        text = "%s %s" % (NUMBERS[n], objs[0].words(True))
        if row and rng.random() < 0.4:
            text = rng.choice(["a row of " + text, text + " in a row"])
        elif rng.random() < 0.06:
            text = "some " + objs[0].words(True)
        return tidy(rng, text, words)
    return bg, objs, say


def settle(rng, o, place, time, x):
    """Puts an object where it belongs in a landscape."""
    big = 1.0
    if place in ("space", "underwater", "sky"):
        o.s = rng.uniform(0.36, 0.52)
        o.x, o.y = x, rng.uniform(-0.22, 0.18)
        return
    if o.kind in SKY_HOME:
        o.s = rng.uniform(0.24, 0.36)
        o.x, o.y = x, rng.uniform(-0.58, -0.38)
        if o.kind in ("rocket", "balloon", "butterfly", "bird"):
            o.s = rng.uniform(0.3, 0.42)
            o.y = rng.uniform(-0.45, -0.2)
        return
    if o.kind in SHAPES:
        o.s = rng.uniform(0.3, 0.44)
        o.x, o.y = x, rng.uniform(-0.12, 0.12)
        return
    o.s = rng.uniform(0.36, 0.52) * big
    o.x = x
    foot = rng.uniform(0.62, 0.78)
    if place == "sea":
        foot = rng.uniform(0.58, 0.72)
    o.y = foot - o.s * 0.95
    o.rot = 0.0 if o.kind != "fish" else o.rot


def landscape(rng):
    place, time = scenery(rng)
    n = 1 if rng.random() < 0.6 else 2
    fits = {
        "sea": ["boat", "boat", "fish", "bird", "sun", "moon", "balloon", "cloud"],
        "sky": ["bird", "balloon", "rocket", "cloud", "butterfly", "sun", "moon", "star"],
        "space": ["rocket", "planet", "planet", "robot", "moon", "star", "sun"],
        "underwater": ["fish", "fish", "robot", "boat", "star"],
        "meadow": ["house", "tree", "flower", "cat", "dog", "butterfly", "car", "mushroom",
                   "bird", "sun", "apple", "robot", "balloon"],
        "snow": ["snowman", "snowman", "house", "pine", "tree", "cat", "dog", "robot", "moon"],
        "desert": ["car", "sun", "house", "rocket", "robot", "bird", "dog"],
        "mountains": ["house", "pine", "tree", "car", "balloon", "bird", "sun", "moon", "rocket"],
        "forest": ["mushroom", "house", "cat", "dog", "bird", "butterfly", "tree", "moon", "flower"],
    }[place]
    fits = [k for k in fits if k in SHAPES or k in THINGS]
    kinds = []
    while len(kinds) < n:
        k = rng.choice(fits) if rng.random() < 0.62 else pick_kind(rng, 0.22)
        if k not in kinds:
            kinds.append(k)
    objs = [Obj(rng, k) for k in kinds]
    if n == 1:
        x = rng.uniform(-0.3, 0.3) if rng.random() < 0.75 else rng.uniform(-0.5, 0.5)
        settle(rng, objs[0], place, time, x)
    else:
        x = rng.uniform(0.4, 0.52)
        settle(rng, objs[0], place, time, -x)
        settle(rng, objs[1], place, time, x)
        for o in objs:
            o.s = min(o.s, 0.44)
            foot = 0.72
            if o.kind not in SKY_HOME and o.kind not in SHAPES and \
                    place not in ("space", "underwater", "sky"):
                o.y = rng.uniform(0.6, foot) - o.s * 0.95
    for o in objs:
        o.x = clamp(o.x, -0.98 + o.s, 0.98 - o.s)
        o.y = clamp(o.y, -0.98 + o.s, 0.98 - o.s)
        if o.s > 0.47 and rng.random() < 0.3:
            o.size_word = rng.choice(LARGE)
        if n == 1 and rng.random() < 0.1:
            o.size_word = rng.choice(SMALL)
            foot = o.y + o.s * 0.95
            o.s = rng.uniform(0.2, 0.26)
            if o.kind not in SKY_HOME and o.kind not in SHAPES and \
                    place not in ("space", "underwater", "sky"):
                o.y = foot - o.s * 0.95
    rainbow = place in ("meadow", "mountains", "sky", "sea") and time == "day" and rng.random() < 0.12
    same_level = n == 2 and (
        place in ("space", "underwater", "sky") or
        (kinds[0] in SKY_HOME) == (kinds[1] in SKY_HOME))

    def say():
        where = scenery_words(rng, place, time)
        if n == 1:
            text = objs[0].phrase()
        else:
            a, b = objs
            u = rng.random()
            if same_level and u < 0.2:
                text = "%s %s %s" % (a.phrase(), rng.choice(REL_WORDS["left"]), b.phrase())
            elif same_level and u < 0.4:
                text = "%s %s %s" % (b.phrase(), rng.choice(REL_WORDS["right"]), a.phrase())
            elif same_level and u < 0.5:
                text = "%s %s %s" % (a.phrase(), rng.choice(REL_WORDS["beside"]), b.phrase())
            else:
                pair = [a, b]
                rng.shuffle(pair)
                text = "%s and %s" % (pair[0].phrase(), pair[1].phrase())
        if rainbow:
            where = rng.choice([where + " with a rainbow", "under a rainbow " + where])
        return tidy(rng, text, where)
    return (place, time, None, None, rainbow), objs, say


def empty(rng):
    place, time = scenery(rng)
    rainbow = place in ("meadow", "mountains", "sky", "sea") and time == "day" and rng.random() < 0.25

    def say():
        nouns = PLACE_NOUNS[place]
        if isinstance(nouns, dict):
            text = rng.choice(nouns[time])
            if time == "day":
                text = (text + " " + rng.choice(TIME_WORDS["day"])).strip()
        else:
            text = rng.choice(nouns)
            if place not in ("space", "underwater"):
                text = (text + " " + rng.choice(TIME_WORDS[time])).strip()
                if time == "sunset" and rng.random() < 0.25:
                    text = rng.choice(["a sunset over ", "sunset over "]) + rng.choice(nouns)
                if time == "night" and rng.random() < 0.2:
                    text = "a starry night over " + rng.choice(nouns)
        if rainbow:
            text = rng.choice([text + " with a rainbow", "a rainbow over " + text])
        return tidy(rng, text)
    return (place, time, None, None, rainbow), [], say


def glyph(rng):
    """One object that fills a picture of half the width: for the small first lessons."""
    bg, objs, say = single(rng)
    o = objs[0]
    if o.size_word:
        o.size_word = None
    o.s = rng.uniform(0.62, 0.9)
    o.x, o.y = rng.uniform(-0.1, 0.1), rng.uniform(-0.1, 0.1)
    _, words = bg, None
    if bg[0] == "solid":
        words = "on %s background" % article(bg[2])
    return bg, objs, lambda: tidy(rng, o.phrase(), words or "")


def lite():
    """A smaller world, for training without a GPU."""
    global COLOR_NAMES, THINGS, PLACES, FAMILIES
    COLOR_NAMES = [c for c in COLOR_NAMES if c not in ("brown", "gray")]
    THINGS = ["house", "tree", "sun", "moon", "boat", "flower", "face", "cat", "fish", "car",
              "rocket", "balloon", "mushroom", "snowman"]
    PLACES = ["sky", "sea", "meadow", "snow", "desert", "mountains"]
    for k, v in DEFAULT_COLORS.items():
        DEFAULT_COLORS[k] = [c for c in v if c in COLOR_NAMES] or ["orange"]
    EXTRAS.update({"second colour": 0.0, "texture": 0.0, "expressions": [0, 0, 1],
                   "synonyms": 0.15, "gradients": 0.06, "noise": 0.6})
    FAMILIES = [(0.30, single), (0.30, two), (0.02, three), (0.08, counted),
                (0.26, landscape), (0.04, empty)]


def plain():
    """The ten plain shapes alone: the world for two slow cores."""
    global THINGS
    THINGS = SHAPES
    EXTRAS.update({"placed": 0.45, "soft": 0.25, "second colour": 0.0, "texture": 0.0,
                   "synonyms": 0.1, "gradients": 0.0, "noise": 0.5})


FAMILIES = [(0.24, single), (0.28, two), (0.08, three), (0.09, counted),
            (0.265, landscape), (0.045, empty)]


def soft_colors(rng):
    """Two related pastel tones."""
    import colorsys
    h = rng.random()
    a = colorsys.hls_to_rgb(h, rng.uniform(0.86, 0.93), rng.uniform(0.45, 0.8))
    b = colorsys.hls_to_rgb((h + rng.uniform(-0.14, 0.14)) % 1, rng.uniform(0.76, 0.87),
                            rng.uniform(0.4, 0.7))
    return a, b


class Scene:
    __slots__ = ("bg", "time", "c1", "c2", "rainbow", "r", "objs", "captions", "family")


def rgb(name):
    return tuple(v / 255 for v in COLORS[name])


def sample_scene(rng, captions=2, family=None):
    if family is None:
        u = rng.random()
        for p, family in FAMILIES:
            u -= p
            if u < 0:
                break
    bg, objs, say = family(rng)
    s = Scene()
    s.family = family.__name__
    s.bg, s.time = bg[0], bg[1]
    s.rainbow = len(bg) > 4 and bool(bg[4])
    if s.bg == "soft":
        s.c1, s.c2 = soft_colors(rng)
    else:
        s.c1 = rgb(bg[2] or "white")
        s.c2 = rgb(bg[3] or "white")
    s.r = [rng.random() for _ in range(12)]
    s.objs = objs
    s.captions = [say() for _ in range(captions)]
    return s


def sample_many(seed, n, captions=2, family=None):
    rng = random.Random(seed)
    return [sample_scene(rng, captions, family and globals()[family]) for _ in range(n)]


BG_F, OBJ_F = 18, 14


def pack(scenes):
    """Flat arrays: bgi [N,3], bgf [N,18], obji [N,4,3], objf [N,4,14]."""
    n = len(scenes)
    bgi = np.zeros((n, 3), np.int32)
    bgf = np.zeros((n, BG_F), np.float32)
    obji = np.full((n, SLOTS, 3), -1, np.int32)
    objf = np.zeros((n, SLOTS, OBJ_F), np.float32)
    for i, s in enumerate(scenes):
        bgi[i] = BG_ID[s.bg], TIMES.index(s.time), s.rainbow
        bgf[i, 0:3], bgf[i, 3:6], bgf[i, 6:18] = s.c1, s.c2, s.r
        for j, o in enumerate(s.objs):
            obji[i, j] = KIND_ID[o.kind], o.texture, o.style
            c2 = COLORS[o.color2] if o.color2 else (-255, -255, -255)
            objf[i, j, 0:3] = np.array(COLORS[o.color]) / 255
            objf[i, j, 3:6] = np.array(c2) / 255
            objf[i, j, 6:10] = o.x, o.y, o.s, o.rot
            objf[i, j, 10:14] = o.r
    return bgi, bgf, obji, objf


if __name__ == "__main__":
    for s in sample_many(1, 40):
        print(s.family, "|", " | ".join(s.captions))
