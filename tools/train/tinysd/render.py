"""Draws packed scenes with signed-distance functions, in batches, on any device.

`render(pack, size)` returns float images [N, 3, size, size] in 0..1.  Every
object is drawn in its own frame, where it fills about the unit circle; edges
are antialiased by the distance in pixels.
"""
import math

import torch

import scenes

TAU = 2 * math.pi


def smooth(e0, e1, v):
    t = ((v - e0) / (e1 - e0)).clamp(0, 1)
    return t * t * (3 - 2 * t)


def length(x, y):
    return torch.sqrt(x * x + y * y + 1e-9)


def circle(x, y, cx, cy, r):
    return length(x - cx, y - cy) - r


def ellipse(x, y, cx, cy, rx, ry, rot=0.0):
    x, y = x - cx, y - cy
    if rot:
        c, s = math.cos(rot), math.sin(rot)
        x, y = c * x + s * y, c * y - s * x
    k0 = length(x / rx, y / ry)
    k1 = length(x / (rx * rx), y / (ry * ry))
    return k0 * (k0 - 1) / k1


def box(x, y, cx, cy, hx, hy, r=0.0):
    qx, qy = (x - cx).abs() - (hx - r), (y - cy).abs() - (hy - r)
    return length(qx.clamp(min=0), qy.clamp(min=0)) + torch.maximum(qx, qy).clamp(max=0) - r


def segment(x, y, ax, ay, bx, by, r):
    px, py, dx, dy = x - ax, y - ay, bx - ax, by - ay
    h = ((px * dx + py * dy) / (dx * dx + dy * dy)).clamp(0, 1)
    return length(px - h * dx, py - h * dy) - r


def polygon(x, y, pts, r=0.0):
    """Exact distance to a simple polygon."""
    d = (x - pts[0][0]) ** 2 + (y - pts[0][1]) ** 2
    s = torch.ones_like(x)
    n = len(pts)
    for i in range(n):
        (ax, ay), (bx, by) = pts[i], pts[i - 1]
        ex, ey = bx - ax, by - ay
        wx, wy = x - ax, y - ay
        h = ((wx * ex + wy * ey) / (ex * ex + ey * ey)).clamp(0, 1)
        qx, qy = wx - ex * h, wy - ey * h
        d = torch.minimum(d, qx * qx + qy * qy)
        c1, c2 = y >= ay, y < by
        c3 = ex * wy > ey * wx
        flip = (c1 & c2 & c3) | ~(c1 | c2 | c3)
        s = torch.where(flip, -s, s)
    return s * torch.sqrt(d + 1e-9) - r


def ngon(n, radius, start=-math.pi / 2):
    return [(radius * math.cos(start + TAU * i / n), radius * math.sin(start + TAU * i / n))
            for i in range(n)]


STAR = [p for pair in zip(ngon(5, 0.92), ngon(5, 0.42, -math.pi / 2 + TAU / 10)) for p in pair]


def heart(x, y):
    x, y = x.abs() / 1.5, (0.86 - y) / 1.5
    a = length(x - 0.25, y - 0.75) - math.sqrt(2) / 4
    m = 0.5 * (x + y).clamp(min=0)
    b = torch.sqrt(torch.minimum(x ** 2 + (y - 1) ** 2, (x - m) ** 2 + (y - m) ** 2) + 1e-9) \
        * torch.sign(x - y)
    return 1.5 * torch.where(x + y > 1, a, b)


def shape_sdf(kind, x, y):
    if kind == "circle":
        return circle(x, y, 0, 0, 0.92)
    if kind == "square":
        return box(x, y, 0, 0, 0.82, 0.82, 0.09)
    if kind == "triangle":
        return polygon(x, y, [(0, -0.86), (0.86, 0.68), (-0.86, 0.68)], 0.07)
    if kind == "star":
        return polygon(x, y, STAR, 0.05)
    if kind == "heart":
        return heart(x, y)
    if kind == "hexagon":
        return polygon(x, y, ngon(6, 0.88, 0.0), 0.05)
    if kind == "ring":
        return (length(x, y) - 0.7).abs() - 0.21
    if kind == "crescent":
        return torch.maximum(circle(x, y, 0, 0, 0.92), -circle(x, y, 0.42, -0.1, 0.72))
    if kind == "cross":
        return torch.minimum(box(x, y, 0, 0, 0.9, 0.3, 0.06), box(x, y, 0, 0, 0.3, 0.9, 0.06))
    if kind == "diamond":
        return polygon(x, y, [(0, -0.92), (0.66, 0), (0, 0.92), (-0.66, 0)], 0.05)
    raise KeyError(kind)


# ------------------------------------------------------------------- painting

class Pen:
    """Paints layers of one kind of object onto a batch of canvases."""

    def __init__(self, canvas, gx, gy, f, px, mirror=False):
        self.c = canvas                       # [n, 3, H, W]
        p = f[:, :, None, None]
        self.col, self.col2 = f[:, 0:3, None, None], f[:, 3:6, None, None]
        x, y, self.s, rot = p[:, 6], p[:, 7], p[:, 8], p[:, 9]
        self.r = [p[:, 10], p[:, 11], p[:, 12], p[:, 13]]
        dx, dy = (gx - x) / self.s, (gy - y) / self.s
        c, s = torch.cos(rot), torch.sin(rot)
        self.x, self.y = c * dx + s * dy, c * dy - s * dx
        if mirror:
            self.x = torch.where(self.r[0] < 0.5, self.x, -self.x)
        self.k = self.s / px
        lum = (self.col * torch.tensor([0.3, 0.59, 0.11], device=f.device)[None, :, None, None]).sum(1, True)
        self.dark = lum < 0.28

    def rgb(self, v):
        if isinstance(v, tuple):
            return torch.tensor(v, device=self.c.device, dtype=self.c.dtype)[None, :, None, None] / 255
        return v

    def fill(self, d, color, alpha=1.0):
        a = ((0.5 - d * self.k).clamp(0, 1) * alpha)[:, None]
        self.c = self.c + a * (self.rgb(color) - self.c)

    def glow(self, d, color, alpha, width):
        """Soft edge that fades over `width` local units outside."""
        a = (1 - (d / width).clamp(0, 1)) ** 2
        self.c = self.c + (a * alpha)[:, None] * (self.rgb(color) - self.c)

    def lit(self, d, color, depth=0.16):
        """Light from the upper left and a darker rim."""
        color = self.rgb(color)
        v = 1.05 - depth * (0.75 * self.y + 0.35 * self.x) * 0.8 - depth * smooth(-0.22, 0.02, d)
        v = v[:, None]
        up = (v - 1).clamp(min=0)
        return (color * v.clamp(max=1) + up * (1.0 - color) * 1.3).clamp(0, 1)

    def body(self, d, color, depth=0.16):
        self.fill(d, self.lit(d, color, depth))

    def shadow(self, d, alpha=0.28, width=0.2):
        self.glow(d, (30, 30, 50), alpha, width)


def tint(c, v):
    """v > 0 towards white, v < 0 towards black."""
    return c + (1 - c) * v if v > 0 else c * (1 + v)


def draw_shape(pen, kind, tex):
    x, y = pen.x, pen.y
    # drop shadow, down and to the right
    pen.shadow(shape_sdf(kind, x - 0.07, y - 0.1), 0.26, 0.16)
    d = shape_sdf(kind, x, y)
    col = pen.lit(d, pen.col)
    if tex is not None and bool((tex > 0).any()):
        light = torch.where(((pen.col.amin(1, True) > 0.8) | ((pen.col[:, :2].amin(1, True) > 0.8))),
                            tint(pen.col, -0.32), tint(pen.col, 0.62))
        stripe = smooth(-0.25, 0.25, torch.sin((x * 0.8 + y * 0.6) * 10.0) * 0.8)
        u, v = x * 0.96 + y * 0.26, y * 0.96 - x * 0.26
        g = 0.44
        du, dv = (u / g - torch.floor(u / g) - 0.5) * g, (v / g - torch.floor(v / g) - 0.5) * g
        dots = (0.5 - (length(du, dv) - 0.115) * pen.k).clamp(0, 1)
        t = tex[:, None, None].to(x.dtype)
        a = torch.where(t == 1, stripe, torch.where(t == 2, dots, torch.zeros_like(dots)))
        col = col + a[:, None] * (light - col) * 0.9
    pen.fill(d, col)
    if kind in ("circle", "heart", "hexagon", "square", "star", "diamond"):
        shine = ellipse(x, y, -0.34, -0.42, 0.24, 0.13, -0.7)
        hold = (d < -0.05).to(x.dtype)
        pen.glow(shine + 0.08, (255, 255, 255), 0.34 * hold * (1 - 0.6 * pen.dark[:, 0].to(x.dtype)), 0.16)


def eyes(pen, ex, ey, rx, ry, color):
    x, y = pen.x.abs(), pen.y
    pen.fill(ellipse(x, y, ex, ey, rx, ry), color)
    for sx in (-1, 1):
        pen.fill(circle(pen.x, y, sx * ex - rx * 0.3, ey - ry * 0.4, rx * 0.36), (255, 255, 255))


def arc(x, y, cx, cy, r, w, cut, up=False):
    d = (length(x - cx, y - cy) - r).abs() - w
    return torch.maximum(d, (y - cut) if up else (cut - y))


INK = (48, 40, 52)


def draw_face(pen, style):
    x, y = pen.x, pen.y
    pen.shadow(circle(x, y, 0.05, 0.08, 0.92), 0.26, 0.16)
    d = circle(x, y, 0, 0, 0.92)
    pen.body(d, pen.col, 0.2)
    ink = torch.where(pen.dark, pen.rgb((240, 240, 240)), pen.rgb(INK))
    st = style[:, None, None]
    one = torch.ones_like(x)
    big = 9 * one
    pen.fill(ellipse(x.abs(), y, 0.56, 0.16, 0.16, 0.11), (255, 110, 120), 0.45)
    eye = ellipse(x.abs(), y, 0.32, -0.2, 0.115, 0.17)
    wink = arc(x, y, 0.34, -0.08, 0.17, 0.045, -0.15, up=True)
    left = ellipse(x, y, -0.32, -0.2, 0.115, 0.17)
    pen.fill(torch.where(st == 3, torch.minimum(left, wink), eye), ink)
    spark = circle(x, y, -0.355, -0.27, 0.045)
    spark = torch.where(st == 3, spark, torch.minimum(spark, circle(x, y, 0.285, -0.27, 0.045)))
    pen.fill(spark, torch.where(pen.dark, pen.rgb(INK), pen.rgb((255, 255, 255))))
    smile = arc(x, y, 0, 0.08, 0.44, 0.06, 0.24)
    sad = arc(x, y, 0, 0.78, 0.4, 0.06, 0.56, up=True)
    oh = ellipse(x, y, 0, 0.42, 0.15, 0.2)
    mouth = torch.where(st == 1, sad, torch.where(st == 2, oh, smile))
    pen.fill(torch.where(st < 9, mouth, big), ink)


def draw_house(pen):
    x, y = pen.x, pen.y
    c2 = torch.where(pen.col2 < 0, torch.where((pen.col[:, :1] > 0.8) & (pen.col[:, 1:2] < 0.4),
                                               pen.rgb((120, 78, 60)), pen.rgb((188, 66, 58))), pen.col2)
    pen.fill(box(x, y, 0.42, -0.5, 0.11, 0.28), (150, 100, 90))
    wall = box(x, y, 0, 0.38, 0.68, 0.54, 0.02)
    pen.shadow(torch.minimum(wall, box(x, y, 0.06, 0.5, 0.7, 0.42)), 0.2, 0.14)
    pen.body(wall, pen.col, 0.1)
    roof = polygon(x, y, [(0, -0.88), (0.92, -0.06), (-0.92, -0.06)], 0.03)
    pen.fill(box(x, y, 0, 0.04, 0.68, 0.1), (40, 30, 40), 0.16)
    pen.body(roof, c2, 0.14)
    pen.fill(box(x, y, 0, 0.6, 0.17, 0.32, 0.05), (112, 70, 46))
    pen.fill(circle(x, y, 0.09, 0.62, 0.035), (250, 220, 120))
    win = box(x.abs(), y, 0.43, 0.34, 0.16, 0.17, 0.02)
    pen.fill(win - 0.035, (250, 250, 250))
    pen.fill(win, (150, 214, 246))
    bar = torch.maximum(torch.minimum((x.abs() - 0.43).abs(), (y - 0.34).abs()) - 0.022, win)
    pen.fill(bar, (250, 250, 250))
    pen.fill(circle(x, y, 0, -0.36, 0.13), (250, 250, 250))
    pen.fill(circle(x, y, 0, -0.36, 0.095), (150, 214, 246))


def draw_tree(pen):
    x, y = pen.x, pen.y
    trunk = polygon(x, y, [(-0.1, 0.1), (0.1, 0.1), (0.16, 0.94), (-0.16, 0.94)])
    pen.body(trunk, (126, 84, 56), 0.2)
    crown = torch.minimum(circle(x.abs(), y, 0.38, 0.06, 0.37), circle(x, y, 0, -0.36, 0.5))
    crown = torch.minimum(crown, circle(x, y, 0, 0.16, 0.36))
    pen.fill(crown, pen.lit(crown, pen.col, 0.26))
    pen.fill(circle(x, y, -0.16, -0.46, 0.2), tint(pen.col, 0.2), 0.55)
    pen.fill(circle(x, y, 0.3, -0.02, 0.15), tint(pen.col, 0.2), 0.4)
    pen.fill(circle(x, y, -0.38, 0.06, 0.13), tint(pen.col, 0.2), 0.4)


def draw_pine(pen):
    x, y = pen.x, pen.y
    pen.fill(box(x, y, 0, 0.8, 0.11, 0.16), (118, 78, 52))
    for i, (top, bottom, half) in enumerate([(0.0, 0.7, 0.66), (-0.46, 0.3, 0.53), (-0.94, -0.12, 0.4)]):
        d = polygon(x, y, [(0, top), (half, bottom), (-half, bottom)], 0.03)
        pen.fill(d - 0.015, tint(pen.col, -0.3), 0.7)
        pen.body(d, tint(pen.col, -0.08 + 0.05 * i), 0.2)


def draw_sun(pen):
    x, y = pen.x, pen.y
    pen.glow(circle(x, y, 0, 0, 0.6), tint(pen.col, 0.25), 0.5, 0.6)
    a = torch.atan2(y, x) / TAU * 12
    t = (a - torch.floor(a) - 0.5).abs() * 2
    rays = (length(x, y) - (0.66 + 0.28 * (1 - t))) * 0.6
    pen.fill(rays, tint(pen.col, -0.06))
    disk = circle(x, y, 0, 0, 0.6)
    pen.fill(disk - 0.05, tint(pen.col, -0.12))
    pen.body(disk, tint(pen.col, 0.08), 0.12)


def draw_moon(pen, style):
    x, y = pen.x, pen.y
    disk = circle(x, y, 0, 0, 0.86)
    thin = torch.maximum(disk, -circle(x, y, 0.42, -0.12, 0.72))
    full = style[:, None, None] == 1
    d = torch.where(full, disk, thin)
    col = tint(pen.col, 0.3)
    pen.glow(disk, col, 0.2 * full.to(x.dtype), 0.4)
    pen.body(d, col, 0.14)
    crater = torch.minimum(circle(x, y, -0.34, -0.3, 0.17), circle(x, y, 0.3, 0.2, 0.22))
    crater = torch.minimum(crater, torch.minimum(circle(x, y, -0.2, 0.42, 0.12), circle(x, y, 0.28, -0.42, 0.1)))
    pen.fill(torch.where(full, crater, 9 + crater), tint(pen.col, -0.16), 0.6)


def draw_cloud(pen):
    x, y = pen.x, pen.y
    d = torch.minimum(circle(x, y, -0.45, 0.1, 0.34), circle(x, y, 0.5, 0.14, 0.3))
    d = torch.minimum(d, circle(x, y, 0.04, -0.1, 0.46))
    d = torch.minimum(d, box(x, y, 0.02, 0.22, 0.78, 0.22, 0.2))
    pen.shadow(d, 0.14, 0.12)
    pen.fill(d, pen.lit(d, pen.col, 0.18))


def draw_boat(pen):
    x, y = pen.x, pen.y
    sail = torch.where(pen.col2 < 0, pen.rgb((250, 248, 240)), pen.col2)
    pen.fill(segment(x, y, 0, -0.88, 0, 0.4, 0.035), (110, 74, 50))
    pen.body(polygon(x, y, [(0.08, -0.82), (0.68, 0.26), (0.08, 0.26)], 0.02), sail, 0.1)
    pen.body(polygon(x, y, [(-0.08, -0.6), (-0.08, 0.26), (-0.54, 0.26)], 0.02), tint(sail, -0.1), 0.1)
    hull = polygon(x, y, [(-0.86, 0.38), (0.86, 0.38), (0.56, 0.84), (-0.56, 0.84)], 0.03)
    pen.body(hull, pen.col, 0.2)
    pen.fill(torch.maximum(hull, (y - 0.47).abs() - 0.045), torch.where(
        pen.col.amin(1, True) > 0.8, tint(pen.col, -0.35), tint(pen.col, 0.7)))
    pen.fill(polygon(x, y, [(0.02, -0.9), (0.3, -0.8), (0.02, -0.7)]), pen.col)


def draw_flower(pen):
    x, y = pen.x, pen.y
    pen.fill(segment(x, y, 0, 0, 0.02, 0.92, 0.05), (76, 150, 72))
    pen.body(ellipse(x, y, 0.24, 0.62, 0.24, 0.1, -0.5), (86, 166, 80))
    pen.body(ellipse(x, y, -0.22, 0.74, 0.22, 0.09, 0.5), (86, 166, 80))
    cx, cy = 0.0, -0.32
    ang = torch.atan2(y - cy, x - cx) / TAU * 6
    f = (ang - torch.floor(ang) - 0.5) * TAU / 6
    r = length(x - cx, y - cy)
    d = ellipse(r * torch.cos(f), r * torch.sin(f), 0.38, 0.0, 0.25, 0.19)
    pen.shadow(d, 0.14, 0.1)
    v = pen.col * (0.84 + 0.2 * smooth(0.1, 0.5, r))[:, None]
    pen.fill(d, v.clamp(0, 1))
    warm = (pen.col[:, :1] > 0.9) & (pen.col[:, 1:2] > 0.5) & (pen.col[:, 2:] < 0.3)
    mid = torch.where(warm, pen.rgb((150, 92, 50)), pen.rgb((252, 206, 70)))
    pen.body(circle(x, y, cx, cy, 0.19), mid, 0.2)


def draw_cat(pen):
    x, y = pen.x, pen.y
    ax = x.abs()
    ear = polygon(ax, y, [(0.72, -0.86), (0.78, 0.02), (0.14, -0.42)], 0.05)
    head = ellipse(x, y, 0, 0.14, 0.84, 0.7)
    pen.shadow(torch.minimum(ear, head), 0.2, 0.14)
    pen.body(ear, pen.col, 0.16)
    pen.fill(polygon(ax, y, [(0.66, -0.66), (0.68, -0.16), (0.32, -0.4)], 0.02), (250, 166, 176))
    pen.body(head, pen.col, 0.16)
    stripe = torch.minimum(segment(x, y, 0, -0.5, 0, -0.26, 0.045), segment(ax, y, 0.2, -0.46, 0.17, -0.28, 0.04))
    mark = torch.where(pen.dark, tint(pen.col, 0.25), tint(pen.col, -0.3))
    pen.fill(stripe, mark)
    pen.fill(ellipse(ax, y, 0.36, 0.02, 0.17, 0.19), (250, 250, 240))
    pen.fill(ellipse(ax, y, 0.35, 0.03, 0.1, 0.165), (44, 60, 48))
    pen.fill(torch.minimum(circle(x, y, -0.39, -0.05, 0.045), circle(x, y, 0.31, -0.05, 0.045)), (255, 255, 255))
    muzzle = ellipse(ax, y, 0.14, 0.42, 0.19, 0.15)
    pen.fill(muzzle, tint(pen.col, 0.62))
    pen.fill(polygon(x, y, [(-0.09, 0.26), (0.09, 0.26), (0, 0.36)], 0.025), (236, 110, 130))
    pen.fill(arc(ax, y, 0.12, 0.4, 0.12, 0.026, 0.42), INK)
    ink = torch.where(pen.dark, pen.rgb((214, 214, 220)), pen.rgb(INK))
    w = torch.minimum(segment(ax, y, 0.44, 0.36, 0.92, 0.28, 0.016), segment(ax, y, 0.44, 0.44, 0.9, 0.5, 0.016))
    pen.fill(w, ink, 0.8)


def draw_dog(pen):
    x, y = pen.x, pen.y
    ax = x.abs()
    head = ellipse(x, y, 0, 0.0, 0.7, 0.74)
    pen.shadow(head, 0.2, 0.14)
    pen.body(head, pen.col, 0.16)
    ear = ellipse(ax, y, 0.7, 0.0, 0.22, 0.52, -0.22)
    mark = torch.where(pen.dark, tint(pen.col, 0.2), tint(pen.col, -0.34))
    pen.body(ear, mark, 0.14)
    pen.fill(ellipse(x, y, 0, 0.36, 0.42, 0.34), tint(pen.col, 0.68))
    pen.fill(ellipse(ax, y, 0.28, -0.16, 0.105, 0.14), INK)
    pen.fill(torch.minimum(circle(x, y, -0.31, -0.21, 0.04), circle(x, y, 0.25, -0.21, 0.04)), (255, 255, 255))
    pen.fill(torch.maximum(ellipse(x, y, 0.02, 0.54, 0.13, 0.24), 0.5 - y), (240, 110, 128))
    pen.fill(arc(ax, y, 0.14, 0.38, 0.14, 0.028, 0.42), INK)
    pen.fill(ellipse(x, y, 0, 0.22, 0.15, 0.105), INK)
    pen.fill(ellipse(x, y, -0.04, 0.18, 0.05, 0.03), (255, 255, 255), 0.6)


def draw_bird(pen):
    x, y = pen.x, pen.y                       # looks right (mirrored for some)
    pen.fill(segment(x, y, -0.05, 0.55, -0.08, 0.9, 0.03), (230, 150, 50))
    pen.fill(segment(x, y, 0.16, 0.55, 0.16, 0.9, 0.03), (230, 150, 50))
    tail = polygon(x, y, [(-0.95, -0.05), (-0.4, 0.05), (-0.42, 0.36), (-0.9, 0.22)], 0.03)
    pen.body(tail, tint(pen.col, -0.2))
    pen.fill(polygon(x, y, [(0.66, -0.36), (0.98, -0.2), (0.66, -0.1)], 0.03), (248, 168, 48))
    body = torch.minimum(ellipse(x, y, -0.04, 0.22, 0.6, 0.46), circle(x, y, 0.36, -0.22, 0.42))
    pen.shadow(body, 0.16, 0.1)
    pen.body(body, pen.col, 0.18)
    pen.fill(torch.maximum(ellipse(x, y, 0.2, 0.36, 0.36, 0.28), body + 0.03), tint(pen.col, 0.6), 0.85)
    wing = ellipse(x, y, -0.2, 0.18, 0.38, 0.22, 0.3)
    pen.body(wing, tint(pen.col, -0.2), 0.2)
    ring = torch.where(pen.dark, pen.rgb((250, 250, 250)), pen.rgb(INK))
    pen.fill(circle(x, y, 0.46, -0.3, 0.1), ring)
    pen.fill(circle(x, y, 0.49, -0.33, 0.04), torch.where(pen.dark, pen.rgb(INK), pen.rgb((255, 255, 255))))


def draw_fish(pen):
    x, y = pen.x, pen.y
    tail = polygon(x, y, [(-0.42, 0), (-0.92, -0.42), (-0.78, 0), (-0.92, 0.42)], 0.04)
    pen.body(tail, tint(pen.col, -0.16))
    pen.body(polygon(x, y, [(-0.28, -0.36), (0.3, -0.4), (-0.3, -0.76)], 0.05), tint(pen.col, -0.16))
    pen.body(polygon(x, y, [(-0.1, 0.34), (0.2, 0.36), (-0.2, 0.64)], 0.04), tint(pen.col, -0.16))
    body = ellipse(x, y, 0.14, 0, 0.74, 0.48)
    pen.shadow(body, 0.16, 0.1)
    pen.body(body, pen.col, 0.2)
    pen.fill(torch.maximum(body + 0.05, 0.16 - y), tint(pen.col, 0.4), 0.6)
    band = torch.minimum((x - 0.18).abs(), (x + 0.2).abs()) - 0.07
    pen.fill(torch.maximum(band, body + 0.02), tint(pen.col, 0.62), 0.85)
    pen.fill(circle(x, y, 0.54, -0.1, 0.15), (255, 255, 255))
    pen.fill(circle(x, y, 0.57, -0.1, 0.085), INK)
    pen.fill(arc(x, y, 0.74, 0.1, 0.12, 0.026, 0.15), INK, 0.8)


def draw_butterfly(pen):
    x, y = pen.x, pen.y
    ax = x.abs()
    up = ellipse(ax, y, 0.5, -0.3, 0.5, 0.38, -0.6)
    low = ellipse(ax, y, 0.4, 0.4, 0.36, 0.29, 0.7)
    both = torch.minimum(up, low)
    pen.shadow(both, 0.18, 0.12)
    pen.fill(both, torch.where(pen.dark, tint(pen.col, 0.2), tint(pen.col, -0.4)))
    pen.fill(both + 0.07, pen.lit(both, pen.col, 0.1))
    spot = torch.minimum(ellipse(ax, y, 0.54, -0.34, 0.19, 0.14, -0.6), circle(ax, y, 0.42, 0.42, 0.12))
    pen.fill(spot, tint(pen.col, 0.62))
    pen.fill(segment(x, y, 0, -0.42, 0, 0.56, 0.085), INK)
    pen.fill(segment(ax, y, 0.02, -0.46, 0.24, -0.84, 0.025), INK)
    pen.fill(circle(ax, y, 0.25, -0.85, 0.055), INK)


def draw_car(pen):
    x, y = pen.x, pen.y
    pen.glow(ellipse(x, y, 0, 0.74, 0.9, 0.06), (20, 20, 30), 0.3, 0.12)
    cab = polygon(x, y, [(-0.5, 0.1), (-0.34, -0.38), (0.28, -0.38), (0.54, 0.1)], 0.07)
    low = box(x, y, 0, 0.32, 0.94, 0.28, 0.16)
    pen.body(torch.minimum(cab, low), pen.col, 0.18)
    for pts in ([(-0.38, 0.06), (-0.27, -0.3), (-0.06, -0.3), (-0.06, 0.06)],
                [(0.06, 0.06), (0.06, -0.3), (0.23, -0.3), (0.4, 0.06)]):
        pen.fill(polygon(x, y, pts, 0.03), (178, 226, 250))
    pen.fill(box(x, y, 0, 0.36, 0.9, 0.03), tint(pen.col, -0.25), 0.7)
    wheel = circle(x.abs(), y, 0.52, 0.56, 0.235)
    pen.fill(wheel, (44, 42, 50))
    pen.fill(wheel + 0.12, (206, 208, 216))
    pen.fill(ellipse(x, y, 0.86, 0.24, 0.07, 0.09), (255, 238, 150))
    pen.fill(ellipse(x, y, -0.88, 0.24, 0.05, 0.08), (230, 60, 60))


def draw_rocket(pen):
    x, y = pen.x, pen.y
    ax = x.abs()
    flame = torch.maximum(ellipse(x, y, 0, 0.66, 0.2, 0.36), 0.6 - y)
    pen.fill(flame, (250, 150, 40))
    pen.fill(torch.maximum(ellipse(x, y, 0, 0.62, 0.11, 0.22), 0.58 - y), (255, 226, 110))
    reddish = (pen.col[:, :1] > 0.8) & (pen.col[:, 1:2] < 0.65) & (pen.col[:, 2:] < 0.3)
    trim = torch.where(reddish, pen.rgb((70, 84, 130)), pen.rgb((220, 62, 60)))
    fin = polygon(ax, y, [(0.2, 0.18), (0.58, 0.56), (0.54, 0.8), (0.2, 0.58)], 0.03)
    pen.body(fin, trim, 0.2)
    hull = torch.maximum(circle(x, y, -0.62, -0.02, 0.98), circle(x, y, 0.62, -0.02, 0.98))
    hull = torch.maximum(hull, y - 0.62)
    pen.body(hull, pen.col, 0.22)
    pen.fill(torch.maximum(hull, y + 0.42), pen.lit(hull, trim, 0.2))
    pen.fill(circle(x, y, 0, -0.1, 0.17), (240, 240, 246))
    pen.fill(circle(x, y, 0, -0.1, 0.12), (110, 190, 240))
    pen.fill(circle(x, y, -0.035, -0.14, 0.04), (255, 255, 255), 0.9)


def draw_balloon(pen):
    x, y = pen.x, pen.y
    pen.fill(segment(x, y + 0.0, 0.0, 0.46, 0.05, 0.94, 0.02), (150, 140, 140))
    pen.fill(polygon(x, y, [(0, 0.36), (0.1, 0.52), (-0.1, 0.52)], 0.02), tint(pen.col, -0.2))
    d = ellipse(x, y, 0, -0.26, 0.58, 0.68)
    pen.shadow(d, 0.16, 0.12)
    pen.body(d, pen.col, 0.24)
    pen.glow(ellipse(x, y, -0.22, -0.52, 0.1, 0.17, 0.5), (255, 255, 255), 0.62, 0.1)


def draw_mushroom(pen):
    x, y = pen.x, pen.y
    stem = polygon(x, y, [(-0.22, 0.0), (0.22, 0.0), (0.3, 0.82), (-0.3, 0.82)], 0.07)
    pen.body(stem, (246, 234, 208), 0.16)
    dome = torch.maximum(ellipse(x, y, 0, 0.14, 0.9, 0.98), y - 0.16)
    dome = torch.minimum(dome, ellipse(x, y, 0, 0.15, 0.9, 0.13))
    pen.shadow(dome, 0.16, 0.1)
    pen.body(dome, pen.col, 0.2)
    bright = pen.col.amin(1, True) > 0.8
    spot = torch.minimum(circle(x, y, -0.06, -0.44, 0.19), ellipse(x, y, 0.46, -0.14, 0.14, 0.17))
    spot = torch.minimum(spot, ellipse(x, y, -0.52, -0.08, 0.15, 0.16))
    spot = torch.minimum(spot, ellipse(x, y, 0.06, 0.02, 0.11, 0.08))
    pen.fill(spot, torch.where(bright, pen.rgb((214, 120, 110)), pen.rgb((255, 252, 244))))


def draw_apple(pen):
    x, y = pen.x, pen.y
    d = torch.minimum(ellipse(x.abs(), y, 0.3, 0.14, 0.52, 0.68), ellipse(x, y, 0, 0.36, 0.5, 0.48))
    dent = circle(x, y, 0, -0.62, 0.18)
    d = torch.maximum(d, -dent)
    pen.shadow(d, 0.2, 0.14)
    pen.body(d, pen.col, 0.22)
    pen.glow(ellipse(x, y, -0.4, -0.16, 0.09, 0.2, 0.35), (255, 255, 255), 0.55, 0.1)
    pen.fill(segment(x, y, 0, -0.42, 0.08, -0.86, 0.05), (112, 74, 48))
    pen.body(ellipse(x, y, 0.34, -0.72, 0.26, 0.12, -0.45), (88, 172, 76), 0.16)


def draw_icecream(pen):
    x, y = pen.x, pen.y
    cone = polygon(x, y, [(-0.44, 0.08), (0.44, 0.08), (0, 0.94)], 0.03)
    pen.body(cone, (226, 168, 98), 0.14)
    lines = torch.minimum(((x + y * 0.5) * 5.5 - torch.floor((x + y * 0.5) * 5.5) - 0.5).abs(),
                          ((x - y * 0.5) * 5.5 - torch.floor((x - y * 0.5) * 5.5) - 0.5).abs())
    pen.fill(torch.maximum((lines - 0.1) / 5.5, cone + 0.02), (190, 128, 66), 0.6)
    scoop = torch.minimum(circle(x, y, 0, -0.28, 0.52), circle(x.abs(), y, 0.36, 0.06, 0.14))
    scoop = torch.minimum(scoop, circle(x, y, 0, 0.1, 0.15))
    pen.shadow(scoop, 0.14, 0.1)
    pen.body(scoop, pen.col, 0.2)
    pen.glow(ellipse(x, y, -0.2, -0.46, 0.12, 0.09, -0.6), (255, 255, 255), 0.5, 0.1)
    pen.fill(segment(x, y, 0.02, -0.86, 0.12, -0.99, 0.02), (90, 130, 60))
    pen.body(circle(x, y, 0, -0.8, 0.13), (214, 40, 60), 0.2)


def draw_snowman(pen):
    x, y = pen.x, pen.y
    low, head = circle(x, y, 0, 0.42, 0.52), circle(x, y, 0, -0.3, 0.37)
    arm = segment(x.abs(), y, 0.44, 0.24, 0.86, -0.08, 0.032)
    pen.fill(arm, (120, 80, 54))
    pen.shadow(torch.minimum(low, head), 0.2, 0.12)
    pen.body(low, (246, 249, 255), 0.2)
    pen.body(head, (250, 252, 255), 0.2)
    pen.fill(box(x, y, 0, -0.6, 0.4, 0.05, 0.03), (52, 50, 60))
    pen.fill(box(x, y, 0, -0.78, 0.25, 0.2, 0.03), (52, 50, 60))
    pen.fill(box(x, y, 0, -0.665, 0.25, 0.04), pen.col)
    pen.body(box(x, y, 0, 0.03, 0.36, 0.085, 0.08), pen.col, 0.16)
    pen.body(box(x, y, 0.22, 0.22, 0.085, 0.2, 0.05), tint(pen.col, -0.1), 0.16)
    pen.fill(circle(x.abs(), y, 0.14, -0.38, 0.055), INK)
    pen.fill(polygon(x, y, [(0, -0.3), (0.26, -0.22), (0, -0.18)], 0.02), (246, 140, 48))
    pen.fill(torch.minimum(circle(x, y, -0.06, 0.36, 0.05), circle(x, y, -0.06, 0.6, 0.05)), INK)


def draw_robot(pen):
    x, y = pen.x, pen.y
    ax = x.abs()
    pen.fill(segment(x, y, 0, -0.6, 0, -0.86, 0.035), (110, 112, 124))
    pen.fill(circle(x, y, 0, -0.88, 0.095), (244, 84, 76))
    pen.body(segment(ax, y, 0.58, 0.3, 0.74, 0.62, 0.09), tint(pen.col, -0.25), 0.14)
    pen.fill(box(ax, y, 0.22, 0.88, 0.15, 0.09, 0.05), tint(pen.col, -0.4))
    torso = box(x, y, 0, 0.5, 0.48, 0.36, 0.1)
    pen.body(torso, tint(pen.col, -0.08), 0.16)
    pen.fill(box(x, y, 0, 0.5, 0.26, 0.17, 0.04), (236, 240, 246))
    pen.fill(circle(x, y, -0.12, 0.5, 0.07), (240, 90, 80))
    pen.fill(circle(x, y, 0.12, 0.5, 0.07), (90, 200, 120))
    pen.fill(box(ax, y, 0.66, -0.26, 0.08, 0.14, 0.04), tint(pen.col, -0.35))
    head = box(x, y, 0, -0.26, 0.62, 0.38, 0.13)
    pen.shadow(head, 0.16, 0.1)
    pen.body(head, pen.col, 0.16)
    pen.fill(box(x, y, 0, -0.3, 0.48, 0.21, 0.1), (44, 48, 66))
    pen.fill(circle(ax, y, 0.22, -0.31, 0.11), (110, 236, 250))
    pen.fill(arc(x, y, 0, -0.34, 0.14, 0.026, -0.25), (110, 236, 250))


def draw_planet(pen):
    x, y = pen.x, pen.y
    c, s = math.cos(-0.35), math.sin(-0.35)
    u, v = c * x + s * y, c * y - s * x
    disk = circle(x, y, 0, 0, 0.58)
    hoop = ellipse(u, v, 0, 0, 0.98, 0.27)
    hoop = torch.maximum(hoop, -ellipse(u, v, 0, 0, 0.76, 0.15))
    ring = torch.where(pen.col.amin(1, True) > 0.8, pen.rgb((220, 190, 150)), tint(pen.col, 0.55))
    pen.fill(hoop, tint(ring, -0.12))
    pen.shadow(disk, 0.2, 0.12)
    band = torch.sin(v * 11)
    base = torch.where((band > 0.25)[:, None], tint(pen.col, -0.14), pen.col + 0 * band[:, None])
    pen.fill(disk, pen.lit(disk, base, 0.3))
    pen.fill(torch.maximum(hoop, -v), ring)


DRAW = {k[5:]: f for k, f in list(globals().items()) if k.startswith("draw_")}


def draw_objects(canvas, kind, tex, style, f, gx, gy, px):
    mirror = kind in ("bird", "fish", "car", "boat", "crescent")
    pen = Pen(canvas, gx, gy, f, px, mirror and kind != "crescent")
    if kind in scenes.SHAPES:
        draw_shape(pen, kind, tex)
    elif kind in ("face", "moon"):
        DRAW[kind](pen, style)
    else:
        DRAW[kind](pen)
    return pen.c


# ---------------------------------------------------------------- backgrounds

def vec(c, like):
    return torch.tensor(c, device=like.device, dtype=like.dtype)[None, :, None, None] / 255


def ramp(y, stops):
    """Vertical gradient through (position, colour) stops; y is [n, H, W]."""
    out = vec(stops[0][1], y).expand(y.shape[0], 3, *y.shape[1:])
    for (p0, _), (p1, c1) in zip(stops, stops[1:]):
        t = ((y - p0) / (p1 - p0)).clamp(0, 1)[:, None]
        out = out + t * (vec(c1, y) - out)
    return out


def over(c, color, a):
    if isinstance(color, tuple):
        color = vec(color, c)
    return c + a[:, None] * (color - c)


def speckle(gx, gy, cells, seed, density):
    """One dot at most per cell: (distance in cells, brightness 0..1)."""
    u, v = (gx + 1) / 2 * cells, (gy + 1) / 2 * cells
    iu, iv = u.floor().clamp(0, cells - 1), v.floor().clamp(0, cells - 1)
    h = torch.sin(iu * 12.9898 + iv * 78.233 + seed * 37.719) * 43758.5453
    h1 = h - h.floor()
    h = torch.sin(iu * 39.346 + iv * 11.135 + seed * 83.155) * 24634.6345
    h2 = h - h.floor()
    h = torch.sin(iu * 73.156 + iv * 52.235 + seed * 9.151) * 35412.1351
    h3 = h - h.floor()
    cx, cy = iu + 0.25 + 0.5 * h1, iv + 0.25 + 0.5 * h2
    on = (h3 < density).to(gx.dtype)
    return length(u - cx, v - cy), on * (0.4 + 0.6 * (h1 * 7 - (h1 * 7).floor())), h2


def starfield(c, gx, gy, seed, cells=11, density=0.5, fade=None):
    d, b, _ = speckle(gx, gy, cells, seed, density)
    size = 0.075 + 0.07 * b
    a = (1 - (d / size).clamp(0, 1)) ** 1.2 * b * 1.3
    if fade is not None:
        a = a * fade
    return over(c, (255, 250, 225), a.clamp(0, 1))


def puff(c, gx, gy, cx, cy, s, color, alpha):
    x, y = (gx - cx) / s, (gy - cy) / s
    d = torch.minimum(circle(x, y, -0.5, 0.08, 0.3), circle(x, y, 0.5, 0.1, 0.27))
    d = torch.minimum(torch.minimum(d, circle(x, y, 0.0, -0.08, 0.42)), box(x, y, 0, 0.2, 0.75, 0.17, 0.16))
    return over(c, color, (0.5 - d * 8 * s.clamp(min=0.1)).clamp(0, 1) * alpha)


def sky(gx, gy, time, r, hor, full=False):
    """The sky down to the horizon `hor` [n,1,1]."""
    y = (gy + 1) / (hor + 1)                  # 0 top .. 1 horizon
    if time == "day":
        c = ramp(y, [(0, (92, 172, 240)), (1, (206, 236, 252))])
        for i in range(2 if not full else 3):
            on = (r[i] < 0.72).to(gx.dtype)
            cx = -0.75 + 0.75 * i + 0.6 * (r[i + 1] - 0.5)
            cy = -1 + (hor + 1) * (0.16 + 0.5 * r[i + 2])
            c = puff(c, gx, gy, cx, cy, 0.22 + 0.14 * r[i + 3], (255, 255, 255), 0.82 * on)
    elif time == "sunset":
        c = ramp(y, [(0, (74, 54, 124)), (0.38, (196, 84, 128)), (0.7, (250, 142, 92)),
                     (1, (255, 214, 128))])
        sx = (r[0] - 0.5) * 1.3
        d = length(gx - sx, gy - hor + 0.05)
        c = over(c, (255, 236, 160), 0.75 * torch.exp(-(d * 2.6) ** 2))
        c = over(c, (255, 246, 204), (0.5 - (d - 0.2) * 40).clamp(0, 1))
        cy = -1 + (hor + 1) * (0.25 + 0.3 * r[3])
        streak = torch.exp(-((gy - cy) / 0.035) ** 2) * smooth(0.9, 0.2, (gx - (r[4] - 0.5) * 1.6).abs() * 1.6)
        c = over(c, (255, 170, 150), 0.5 * streak)
    else:
        c = ramp(y, [(0, (14, 18, 52)), (0.65, (34, 42, 98)), (1, (72, 76, 142))])
        c = starfield(c, gx, gy, r[0], fade=(1.1 - y).clamp(0, 1).sqrt())
        on = (r[5] < 0.6).to(gx.dtype)
        mx, my = torch.where(r[6] < 0.5, -0.6 - 0.15 * r[7], 0.6 + 0.15 * r[7]), -0.68 + 0.12 * r[8]
        d = length(gx - mx, gy - my)
        c = over(c, (250, 244, 206), 0.25 * on * torch.exp(-(d / 0.3) ** 2))
        cut = length(gx - mx - 0.07, gy - my + 0.03) - 0.125
        crescent = torch.where(r[9] < 0.6, torch.maximum(d - 0.15, -cut), d - 0.15)
        c = over(c, (252, 246, 214), on * (0.5 - crescent * 60).clamp(0, 1))
    return c


LIGHT = {"day": (1.0, 1.0, 1.0), "sunset": (0.86, 0.66, 0.66), "night": (0.36, 0.42, 0.66)}


def dim(c, time):
    return c * (vec(LIGHT[time], c) * 255)


def rainbow_arc(c, gx, gy, hor):
    d = length(gx, (gy - hor - 0.15) * 1.0)
    for i, col in enumerate([(236, 80, 80), (246, 160, 70), (250, 226, 90), (100, 200, 110),
                             (80, 150, 236), (150, 100, 210)]):
        r0 = 1.0 - i * 0.055
        a = (0.5 - ((d - r0).abs() - 0.028) * 50).clamp(0, 1)
        c = over(c, col, 0.62 * a)
    return c


def background(kind, time, gx, gy, f, rainbow):
    """gx, gy [n,H,W]; f [n,18]; returns [n,3,H,W]."""
    p = f[:, :, None, None]
    c1, c2 = f[:, 0:3, None, None], f[:, 3:6, None, None]
    r = [p[:, 6 + i] for i in range(12)]
    if kind == "solid":
        v = (1.02 - 0.06 * (gx * gx + gy * gy))[:, None]
        return (c1 * v).clamp(0, 1)
    if kind in ("gradient", "soft"):
        t = smooth(-0.95, 0.95, gy)[:, None]
        return c1 + t * (c2 - c1)
    if kind == "space":
        c = ramp(gy, [(-1, (16, 12, 40)), (0.2, (26, 20, 66)), (1, (14, 14, 46))])
        for i, col in enumerate([(132, 60, 190), (40, 110, 190), (206, 80, 150)]):
            x, y = gx - (r[2 * i] - 0.5) * 1.8, gy - (r[2 * i + 1] - 0.5) * 1.8
            d = x * x + (y * 1.5 + 0.5 * x) ** 2
            c = over(c, col, 0.34 * torch.exp(-d * 3))
        return starfield(c, gx, gy, r[6], 12, 0.55)
    if kind == "underwater":
        c = ramp(gy, [(-1, (86, 206, 226)), (-0.1, (30, 130, 196)), (1, (12, 62, 128))])
        ray = torch.sin((gx + gy * 0.35) * 5.5 + r[0] * 6.28) * torch.sin((gx + gy * 0.35) * 3.1 + r[1] * 6.28)
        c = over(c, (220, 250, 255), (ray.clamp(min=0) * 0.3 * smooth(0.9, -0.9, gy)))
        d, b, h = speckle(gx, gy, 5, r[2], 0.34)
        rad = 0.12 + 0.1 * h
        c = over(c, (226, 250, 255), b.sign() * (0.75 * (1 - ((d - rad).abs() / 0.05).clamp(0, 1)) + 0.16 * (d < rad).to(d.dtype)))
        top = 0.8 + 0.05 * torch.sin(gx * 4 + r[3] * 6.28)
        a = (0.5 + (gy - top) * 40).clamp(0, 1)
        c = over(c, ramp(gy, [(0.7, (214, 196, 150)), (1, (176, 152, 110))]), a)
        for i in range(3):
            wx = -0.8 + 0.8 * i + 0.5 * (r[4 + i] - 0.5) + 0.05 * torch.sin(gy * 12 + r[7] * 6)
            wd = torch.maximum((gx - wx).abs() - 0.035 * smooth(0.4, 0.95, gy), 0.56 + 0.2 * r[5 + i] - gy)
            c = over(c, (46, 150, 96), (0.5 - wd * 60).clamp(0, 1) * 0.9)
        return c

    hor = 0.12 + 0.14 * r[10]
    full = kind == "sky"
    if full:
        hor = hor * 0 + 1.05
    c = sky(gx, gy, time, r, hor, full)
    if rainbow:
        c = rainbow_arc(c, gx, gy, hor.clamp(max=0.6))
    if kind == "sky":
        return c
    edge = lambda top, sharp=60: (0.5 + (gy - top) * sharp).clamp(0, 1)
    if kind == "sea":
        col = {"day": [(0, (86, 186, 222)), (1, (22, 96, 172))],
               "sunset": [(0, (240, 150, 120)), (0.35, (150, 84, 136)), (1, (60, 44, 104))],
               "night": [(0, (58, 74, 140)), (1, (14, 24, 66))]}[time]
        y = (gy - hor) / (1 - hor)
        water = ramp(y, col)
        ph = gx * 7 + r[1] * 6.28
        w = torch.sin(9.0 * (y.clamp(min=0) + 0.02).sqrt() * 4 + 0.7 * torch.sin(ph) + r[2] * 6.28)
        a = smooth(0.72, 1.0, w) * 0.34
        foam = {"day": (226, 246, 252), "sunset": (255, 206, 160), "night": (140, 156, 214)}[time]
        water = over(water, foam, a)
        if time == "sunset":
            sx = (r[0] - 0.5) * 1.3
            g = torch.exp(-((gx - sx) / (0.12 + 0.2 * y.clamp(0, 1))) ** 2)
            water = over(water, (255, 226, 150), g * (0.35 + 0.4 * smooth(-0.1, 0.5, w)))
        return over(c, water, edge(hor))
    if kind == "mountains":
        def tri(v):
            return (v - torch.floor(v + 0.5)).abs() * 2
        for i, (amp, fr, col, cap) in enumerate([(0.62, 0.85, (136, 150, 186), 0.2),
                                                 (0.46, 1.15, (96, 112, 150), 0.16)]):
            u = gx * fr / 2 + r[i] * 3
            top = hor + 0.08 - amp * (1 - tri(u)) * (0.75 + 0.25 * torch.sin(gx * 1.3 + r[2 + i] * 6.28))
            a = edge(top, 45)
            c = over(c, dim(vec(col, c), time) + 0 * c, a)
            zig = 0.05 * tri(gx * 4.5 + r[3] * 3)
            snow = a * (0.5 - (gy - (hor + 0.08 - amp + 0.05 + cap + zig)) * 45).clamp(0, 1)
            c = over(c, dim(vec((246, 249, 255), c), time) + 0 * c, snow)
    if kind == "forest":
        for i, (sc, base, col) in enumerate([(0.3, 0.1, (92, 140, 110)), (0.4, 0.22, (52, 108, 78))]):
            u = gx / sc + r[i] * 7
            iu = u.floor()
            h = torch.sin(iu * 91.7 + r[2 + i] * 57.3) * 4375.85
            h = h - h.floor()
            fx = (u - iu - 0.5).abs() * 2
            tall = 0.5 + 0.34 * h
            yy = (gy - (hor + base - tall)) / tall           # 0 tip .. 1 foot
            saw = yy * 3 - (yy * 3).floor()
            half = (0.18 + 0.62 * yy) * (0.72 + 0.42 * saw)
            a = (0.5 - (fx - half) * sc * 34).clamp(0, 1) * (yy > 0).to(gx.dtype)
            a = torch.maximum(a, edge(hor + base, 40))
            c = over(c, dim(vec(col, c), time) + 0 * c, a)
    ground = {"meadow": [(0, (150, 206, 96)), (1, (70, 150, 70))],
              "mountains": [(0, (150, 196, 112)), (1, (84, 150, 84))],
              "forest": [(0, (112, 170, 88)), (1, (60, 124, 66))],
              "snow": [(0, (246, 250, 255)), (1, (198, 216, 240))],
              "desert": [(0, (246, 214, 140)), (1, (222, 168, 96))]}[kind]
    soft = {"meadow": (122, 188, 92), "mountains": (120, 180, 98), "forest": (88, 146, 78),
            "snow": (226, 236, 250), "desert": (232, 188, 116)}[kind]
    top1 = hor + 0.02 + 0.09 * torch.sin(gx * 1.7 + r[3] * 6.28)
    top2 = hor + 0.24 + 0.08 * torch.sin(gx * 2.1 + r[4] * 6.28)
    if kind not in ("forest",):
        c = over(c, dim(vec(soft, c), time) + 0 * c, edge(top1 if kind != "mountains" else top1 + 0.1))
    y = (gy - hor - 0.15) / (0.85 - hor)
    c = over(c, dim(ramp(y, ground), time), edge(top2))
    if kind == "meadow":
        d, b, h = speckle(gx, gy, 9, r[5], 0.3)
        below = (gy > top2 + 0.06).to(gx.dtype) * (r[6] < 0.7).to(gx.dtype)
        colr = torch.where(h[:, None] < 0.5, vec((255, 250, 240), c), vec((255, 220, 90), c))
        c = over(c, dim(colr, time), (1 - (d / 0.2).clamp(0, 1)).sqrt() * b.sign() * below)
    if kind == "snow":
        d, b, h = speckle(gx, gy, 9, r[5], 0.5)
        c = over(c, (255, 255, 255), (1 - (d / 0.16).clamp(0, 1)) * b.sign() * 0.9)
    if kind == "desert":
        rip = torch.sin((gy - top2) * 36 + 1.6 * torch.sin(gx * 3 + r[7] * 6))
        c = over(c, dim(vec((206, 152, 84), c), time) + 0 * c, 0.22 * smooth(0.3, 1, rip) * edge(top2 + 0.03))
    return c


# --------------------------------------------------------------------- scenes

def grid(size, device, dtype=torch.float32):
    v = (torch.arange(size, device=device, dtype=dtype) + 0.5) / size * 2 - 1
    return v[None, None, :].expand(1, size, size), v[None, :, None].expand(1, size, size)


@torch.no_grad()
def render(packed, size=128, device="cpu"):
    bgi, bgf, obji, objf = [torch.as_tensor(a).to(device) for a in packed]
    n = bgi.shape[0]
    px = 2.0 / size
    gx0, gy0 = grid(size, device)
    out = torch.zeros(n, 3, size, size, device=device)
    host = bgi.cpu()
    key = host[:, 0] * 100 + host[:, 1] * 10 + host[:, 2]
    for k in key.unique().tolist():
        idx = (key == k).nonzero()[:, 0].to(device)
        m = len(idx)
        out[idx] = background(scenes.BACKGROUNDS[k // 100], scenes.TIMES[k // 10 % 10],
                              gx0.expand(m, -1, -1), gy0.expand(m, -1, -1), bgf[idx], k % 10)
    kinds = obji[:, :, 0].cpu()
    for slot in range(kinds.shape[1]):
        for k in kinds[:, slot].unique().tolist():
            if k < 0:
                continue
            idx = (kinds[:, slot] == k).nonzero()[:, 0].to(device)
            out[idx] = draw_objects(out[idx], scenes.KINDS[k], obji[idx, slot, 1],
                                    obji[idx, slot, 2], objf[idx, slot], gx0, gy0, px)
    return out.clamp_(0, 1)


@torch.no_grad()
def cover(packed, size=64):
    """[N, 1, size, size]: the share of every pixel that a plain shape covers.

    A shape that lies inside another one counts as a hole in it.
    """
    bgi, _, obji, objf = [torch.as_tensor(a) for a in packed]
    gx, gy = grid(size, "cpu")
    out = torch.zeros(len(bgi), 1, size, size)
    for slot in range(obji.shape[1]):
        for k in obji[:, slot, 0].unique().tolist():
            if k < 0:
                continue
            idx = (obji[:, slot, 0] == k).nonzero()[:, 0]
            first, f = objf[idx, 0], objf[idx, slot]
            pen = Pen(out[idx], gx, gy, f, 2.0 / size)
            nested = (length(f[:, 6] - first[:, 6], f[:, 7] - first[:, 7]) < first[:, 8] * 0.5) & (slot > 0)
            value = (~nested).float()[:, None, None, None]
            pen.fill(shape_sdf(scenes.KINDS[k], pen.x, pen.y), value)
            out[idx] = pen.c
    return out


def sheet(images, cols):
    """Tiles [n,3,h,w] images into one uint8 numpy array."""
    n, _, h, w = images.shape
    rows = (n + cols - 1) // cols
    canvas = torch.ones(3, rows * (h + 4) + 4, cols * (w + 4) + 4)
    for i in range(n):
        y, x = 4 + (i // cols) * (h + 4), 4 + (i % cols) * (w + 4)
        canvas[:, y:y + h, x:x + w] = images[i].cpu()
    return (canvas.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()


if __name__ == "__main__":
    import sys
    from PIL import Image
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    pics = scenes.sample_many(int(sys.argv[3]) if len(sys.argv) > 3 else 0, count)
    Image.fromarray(sheet(render(scenes.pack(pics)), 8)).save(sys.argv[1])
    for s in pics:
        print(s.captions[0])
