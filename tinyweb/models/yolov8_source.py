"""Where a YOLOv8 comes from: a folder or a file of PyTorch, safetensors or ONNX, and what it says beside weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config, ModelFolder, read_json
from tinyweb.formats.labels import labels_of, literal
from tinyweb.formats.onnx.weights import OnnxWeights
from tinyweb.formats.tensors import NamedTensors, SafetensorsWeights
from tinyweb.formats.torch_checkpoint import TorchCheckpoint
from tinyweb.models.detection import Settings

SUFFIXES: dict[str, Callable[[Path], NamedTensors]] = {
    ".pt": TorchCheckpoint, ".pth": TorchCheckpoint, ".bin": TorchCheckpoint, ".ckpt": TorchCheckpoint,
    ".safetensors": SafetensorsWeights, ".onnx": OnnxWeights,
}  # fmt: skip
SIZE = 640  # of an input where nothing is said
MAX_SIZE = 4096
FIRST = "model.0.conv.weight"  # of a YOLOv8
# the 80 classes of COCO, in the order of the published checkpoints
COCO = (
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,"
    "bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,"
    "skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,"
    "cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,"
    "potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,"
    "refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush"
)


class Weights(Protocol):
    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]: ...


@dataclass(frozen=True)
class Source:
    """What is known of a model: its weights, the names of its classes (none: not known), the size (height, width) of
    the images it was made for, its settings, and of a folder config.json."""

    weights: Weights
    labels: Sequence[str] | None
    size: tuple[int, int]
    defaults: Settings
    config: Config | None = None


def open_source(path: str | Path) -> Source:
    """A folder with config.json and model.safetensors, a folder with one checkpoint, or a checkpoint: .pt, .onnx,
    .safetensors. ModelFormatError where there is none, or where it is damaged or of another kind of model."""
    path = Path(path)
    if not path.exists():
        raise ModelFormatError(f"{path} does not exist: give a model folder or a .pt, .safetensors or .onnx file")
    if path.is_dir():
        described = (path / "config.json").is_file() and "depth_multiple" in read_json(path / "config.json")
        held = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES)
        if described:
            return _of_folder(ModelFolder(path))
        if not held:
            raise ModelFormatError(
                f"{path} holds neither the config.json of a YOLOv8 nor a checkpoint: "
                "give a model folder or a .pt, .safetensors or .onnx file"
            )
        if len(held) > 1:
            names = ", ".join(p.name for p in held[:8])
            raise ModelFormatError(f"{path} holds several checkpoints ({names}): give the path of one of them")
        path = held[0]
    if path.suffix not in SUFFIXES or not path.is_file():
        raise ModelFormatError(
            f"{path} is of an unknown kind: give a model folder or a .pt, .safetensors or .onnx file"
        )
    return _of_file(SUFFIXES[path.suffix](path))


def _of_folder(folder: ModelFolder) -> Source:
    config = folder.config
    recommended = config.section("recommended") or Config({}, config.where)
    defaults = Settings(
        recommended.number("conf", 0, 1, Settings.confidence),
        recommended.number("iou", 0, 1, Settings.iou),
        recommended.flag("agnostic_nms", Settings.agnostic),
    )
    labels = labels_of(config.values.get("names"))
    return Source(folder.weights(), labels, _size(config.values.get("imgsz")), defaults, config)


def _of_file(weights: NamedTensors) -> Source:
    first = next((n for n in weights.shapes if n == FIRST or n.endswith("." + FIRST)), None)
    if first is None:
        raise ModelFormatError(f"{weights.path} is no YOLOv8: it has no {FIRST}")
    weights.prefix = first.removesuffix(FIRST)
    names: Any = None
    size: Any = None
    if isinstance(weights, TorchCheckpoint):
        names = weights.attribute("names")
        settings = weights.root.get("train_args") if isinstance(weights.root, dict) else None
        size = settings.get("imgsz") if isinstance(settings, dict) else None
    elif isinstance(weights, OnnxWeights):
        names, size = (literal(weights.metadata.get(key)) for key in ("names", "imgsz"))
    return Source(weights, labels_of(names), _size(size), Settings())


def labels_for(labels: Sequence[str] | None, classes: int, where: str) -> list[str]:
    """The given names, or those that so many classes have by custom; ModelFormatError where there are too few."""
    if labels is None:
        custom = COCO.split(",")
        return custom if classes == len(custom) else [f"class {i}" for i in range(classes)]
    if len(labels) != classes:
        raise ModelFormatError(f"{where}: {len(labels)} names for {classes} classes: the files are not of one model")
    return list(labels)


def _size(size: Any) -> tuple[int, int]:
    """(height, width), rounded up to what the network can take."""
    pair = [size, size] if type(size) is int else size
    if not isinstance(pair, list | tuple) or len(pair) != 2 or any(type(n) is not int for n in pair):
        return SIZE, SIZE
    height, width = (min(max(-(-n // 32), 1) * 32, MAX_SIZE) for n in pair)
    return height, width
