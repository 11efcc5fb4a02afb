"""Object detection around a network: the picture in a square, the best positions, and boxes in the picture's pixels.

    detector = Detector(YOLOv8.from_folder("assets/models/tinyyolo"), (320, 320))
    for found in detector.detect(image):              # uint8 (H, W, 3)
        print(found.label, found.score, found.box)

What is notable:
- `Detector.__call__` is one function of tensors with outputs of fixed size, so that an exported page gets boxes and
  nothing else: the grey around the picture, the network, the choice of candidates, non-maximum suppression and the
  way back to the picture's pixels are all in its graph.
- Suppression is greedy, as published, and exact: a candidate falls if one that was kept, of higher score and the same
  class, overlaps it by more than the limit. Which candidates overlap is a matrix of bits; 32 candidates are then
  decided by each of a few equal kernels, whose integers hold who of the 32 is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import size_max
from tinyweb.tensor import Tensor
from tinyweb.tracing import jit

PAD = 114  # the grey around a picture, of 255
CANDIDATES = 1024  # positions that suppression looks at, those of highest score
MAX_BOXES = 300
WORD = 32  # candidates decided by a kernel
CHANNELS = 4  # of a picture as canvases have it; the last, opacity, is not looked at


class Network(Protocol):
    """What a detector is built around: its weights already read, images (1, 3, H, W) from 0 to 1. One whose weights are
    not on the default device says where they are: `device`, the name of theirs."""

    @property
    def labels(self) -> Sequence[str]: ...

    def candidates(self, x: Tensor, limit: int) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes (n, 4) as x1 y1 x2 y2 in pixels of the input, scores (n,) and classes int32 (n,) of the `limit` best
        positions, or all there are, highest score first."""
        ...


@dataclass(frozen=True)
class Detection:
    """One object: `box` is x1, y1, x2, y2 in pixels of the image."""

    label: str
    score: float
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Settings:
    """Boxes of a score above `confidence` are kept unless one of higher score overlaps them by more than `iou`, which
    must be of the same class unless `agnostic`."""

    confidence: float = 0.25
    iou: float = 0.7
    agnostic: bool = False

    def __post_init__(self) -> None:
        for name in ("confidence", "iou"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is a number from 0 to 1, got {value}")

    def array(self) -> npt.NDArray[np.float32]:
        return np.array([self.confidence, self.iou, self.agnostic], np.float32)


class Detector:
    """A network, the size (height, width) of its input, and what it is asked for where nothing else is said."""

    def __init__(
        self, network: Network, size: tuple[int, int], defaults: Settings | None = None, max_boxes: int = MAX_BOXES
    ):
        for needed in ("labels", "candidates"):
            if not hasattr(network, needed):
                raise TypeError(f"Detector: {type(network).__name__} has no `{needed}`, which a network needs")
        self.network, self.size, self.max_boxes = network, size, max_boxes
        self.defaults = defaults or Settings()
        self._compiled = jit(self._arrays)

    def __call__(self, image: Tensor, frame: Tensor, source: Tensor, settings: Tensor) -> dict[str, Tensor]:
        """`image` uint8 (H, W, 4) of this size holds a picture at `frame` (left, top, width, height), whole pixels;
        what is around it does not matter. `source` (width, height): the size of what was drawn there. `settings`
        (confidence, iou, 1 for agnostic). All but the image are float32.

        Returns boxes float32 (max_boxes, 4) as x1 y1 x2 y2 in pixels of the source, within it; scores float32 and
        classes int32 (max_boxes,); how many of them are meant, count int32 (1,). Highest score first.
        """
        x = _normalised(image, frame)
        boxes, scores, classes = self.network.candidates(x, CANDIDATES)
        boxes, scores, classes, count = suppress(boxes, scores, classes, settings, self.max_boxes)
        scale = source / frame[2:]
        corners = (boxes.reshape(-1, 2, 2) - frame[:2]) * scale
        within = corners.maximum(0.0).minimum(source).reshape(-1, 4)
        taken = Tensor.arange(self.max_boxes, device=image.device) < count
        return {
            "boxes": taken.unsqueeze(1).where(within, 0.0),
            "scores": scores,
            "classes": classes,
            "count": count,
        }

    def inputs(self, device: str | None = None) -> dict[str, Tensor]:
        """Examples of the arguments of a call."""
        height, width = self.size
        return {
            "image": Tensor.zeros(height, width, CHANNELS, dtype=dtypes.uint8, device=device),
            "frame": Tensor.zeros(4, device=device),
            "source": Tensor.zeros(2, device=device),
            "settings": Tensor.zeros(3, device=device),
        }

    def detect(
        self, image: npt.NDArray[np.uint8], confidence: float | None = None, iou: float | None = None,
        agnostic: bool | None = None,
    ) -> list[Detection]:  # fmt: skip
        """The objects in an image uint8 (H, W), (H, W, 3) or (H, W, 4) with opacity, then in front of white, highest
        score first.

        Without arguments the model's own settings hold. ValueError for another array or numbers beyond 0 … 1.
        """
        asked = Settings(
            self.defaults.confidence if confidence is None else confidence,
            self.defaults.iou if iou is None else iou,
            self.defaults.agnostic if agnostic is None else agnostic,
        )
        picture = _three_channels(image)
        square, frame = letterboxed(picture, self.size)
        source = np.array([picture.shape[1], picture.shape[0]], np.float32)
        device = getattr(self.network, "device", None)
        given = [Tensor(a, device=device) for a in (square, frame, source, asked.array())]
        boxes, scores, classes, count = (t.numpy() for t in self._compiled(*given))
        labels = self.network.labels
        return [
            Detection(labels[int(classes[i])], float(scores[i]), (float(x1), float(y1), float(x2), float(y2)))
            for i, (x1, y1, x2, y2) in enumerate(boxes[: int(count[0])])
        ]

    def _arrays(self, *given: Tensor) -> list[Tensor]:
        found = list(self(*given).values())
        found[0].realize(*found[1:])
        return found


def letterboxed(
    image: npt.NDArray[np.uint8], size: tuple[int, int]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """An image (H, W, 3) in proportion and in the middle of (height, width, 4), and its place: left, top, width,
    height."""
    height, width = size
    factor = min(height / image.shape[0], width / image.shape[1])
    h, w = (max(round(n * factor), 1) for n in image.shape[:2])
    top, left = (height - h) // 2, (width - w) // 2
    square = np.zeros((height, width, CHANNELS), np.uint8)
    square[top : top + h, left : left + w, :3] = resampled(image, (h, w))
    return square, np.array([left, top, w, h], np.float32)


def resampled(image: npt.NDArray[np.uint8], size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """An image (H, W, C) of another height and width: linear between pixels, averaged over those that become one."""
    x = image.astype(np.float32)
    for axis, count in enumerate(size):
        have = x.shape[axis]
        ratio = have / count
        reach = max(ratio, 1.0)  # of the triangle around each new pixel's centre
        centre = (np.arange(count) + 0.5) * ratio
        first = np.floor(centre - reach + 0.5).astype(np.int64)
        taps = first[:, None] + np.arange(int(np.ceil(2 * reach)) + 1)
        weights = np.maximum(1 - np.abs(taps + 0.5 - centre[:, None]) / reach, 0) * ((taps >= 0) & (taps < have))
        weights = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
        moved, taps = np.moveaxis(x, axis, 0), taps.clip(0, have - 1)
        spread = (count,) + (1,) * (moved.ndim - 1)
        total = sum(moved[taps[:, t]] * weights[:, t].reshape(spread) for t in range(taps.shape[1]))
        x = np.moveaxis(np.asarray(total), 0, axis)
    return np.rint(x).clip(0, 255).astype(np.uint8)


def suppress(
    boxes: Tensor, scores: Tensor, classes: Tensor, settings: Tensor, max_boxes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Greedy non-maximum suppression of boxes (n, 4) sorted by their scores (n,), with classes int32 (n,).

    `settings`: see `Detector`. Returns the `max_boxes` best of those kept, in order: boxes, scores, classes, and how
    many there are, int32 (1,); what follows them is zeros.
    """
    n = size_max(scores.shape[0])
    spare = -n % WORD
    boxes = boxes.pad(((0, spare), (0, 0))).contiguous()
    scores, classes = scores.pad(((0, spare),)).contiguous(), classes.pad(((0, spare),)).contiguous()
    device, total = boxes.device, n + spare
    place = Tensor.arange(total, device=device)
    real = (place < n) & (scores > settings[0])
    overlaps = _overlaps(boxes, classes, settings)
    # who has fallen, and at the end the number of the word that is next: so all steps are one kernel
    state = Tensor.cat([real.where(0, 1).int(), Tensor.zeros(1, dtype=dtypes.int32, device=device)]).contiguous()
    for _ in range(total // WORD):
        state = _decided(overlaps, state).contiguous()
    kept = state[:total].eq(0)
    rank = kept.int().cumsum(0).contiguous()  # of those kept, counted from 1
    slot = Tensor.arange(max_boxes, device=device).unsqueeze(1)
    chosen = (kept & rank.eq(slot + 1)).where(place, 0).sum(1).int().contiguous()
    count = rank[total - 1 :].minimum(max_boxes).int()
    taken = Tensor.arange(max_boxes, device=device) < count
    return (
        taken.unsqueeze(1).where(boxes.take(chosen, 0), 0.0),
        taken.where(scores.take(chosen, 0), 0.0),
        taken.where(classes.take(chosen, 0), 0),
        count,
    )


def _overlaps(boxes: Tensor, classes: Tensor, settings: Tensor) -> Tensor:
    """For each box, words (n, n / 32) of bits: which boxes before it overlap it too much."""
    n = size_max(classes.shape[0])
    place = Tensor.arange(n, device=boxes.device)

    def words(t: Tensor) -> Tensor:
        return t.reshape(1, n // WORD, WORD)

    def rows(t: Tensor) -> Tensor:
        return t.reshape(n, 1, 1)

    x1, y1, x2, y2 = (boxes[:, i] for i in range(4))
    width = words(x2).minimum(rows(x2)) - words(x1).maximum(rows(x1))
    height = words(y2).minimum(rows(y2)) - words(y1).maximum(rows(y1))
    shared = width.maximum(0.0) * height.maximum(0.0)
    area = (x2 - x1) * (y2 - y1)
    much = shared > settings[1] * (words(area) + rows(area) - shared)
    alike = words(classes).eq(rows(classes)) | (settings[2] > 0)
    earlier = words(place) < rows(place)
    bits = Tensor(np.left_shift(np.uint32(1), np.arange(WORD, dtype=np.uint32)), device=boxes.device)
    return (much & alike & earlier).where(bits, 0).sum(2).cast(dtypes.uint32).contiguous()


def _decided(overlaps: Tensor, state: Tensor) -> Tensor:
    """The state (n + 1) after the next 32 candidates: one by one, who is kept, then whom those strike out."""
    n, words = (size_max(s) for s in overlaps.shape)
    word = state[n]
    mine = Tensor.arange(WORD, device=state.device) + word * WORD
    fallen, before = state.take(mine, 0), overlaps.reshape(-1).take(mine * words + word, 0)
    kept: Any = Tensor(0, dtype=dtypes.uint32, device=state.device)
    for i in range(WORD):
        stays = fallen[i].eq(0) & (before[i] & kept).eq(0)
        kept = stays.where(kept | 1 << i, kept)
    struck = (overlaps.take(word, 1) & kept).ne(0)
    after: Tensor = Tensor.cat([state[:n] | struck.int(), (word + 1).reshape(1)])
    return after


def _normalised(image: Tensor, frame: Tensor) -> Tensor:
    """Pixels (H, W, 4), grey where `frame` is not, as the network wants them: (1, 3, H, W) from 0 to 1."""
    height, width = (size_max(s) for s in image.shape[:2])
    x = Tensor.arange(width, device=image.device).float()
    y = Tensor.arange(height, device=image.device).float()
    across = (x >= frame[0]) & (x < frame[0] + frame[2])
    down = (y >= frame[1]) & (y < frame[1] + frame[3])
    inside = (across.unsqueeze(0) & down.unsqueeze(1)).unsqueeze(2)
    pixels = inside.where(image[:, :, :3].float(), float(PAD)) / 255.0
    planes: Tensor = pixels.permute(2, 0, 1).unsqueeze(0).contiguous()
    return planes


def _three_channels(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    a = np.asarray(image)
    if a.ndim == 2:
        a = np.repeat(a[:, :, None], 3, 2)
    if a.dtype != np.uint8 or a.ndim != 3 or a.shape[2] not in (3, 4) or not a.size:
        raise ValueError(f"an image is uint8 of shape (H, W), (H, W, 3) or (H, W, 4), got {a.dtype} {a.shape}")
    colour, opacity = a[:, :, :3], a[:, :, 3:]
    if not opacity.size or (opacity == 255).all():
        return colour
    mixed: npt.NDArray[np.uint8] = np.rint(255 - (255.0 - colour) * (opacity / 255)).astype(np.uint8)
    return mixed
