"""ONNX: graphs read, and computed with Tensors."""

from tinyweb.formats.onnx.graph import Port
from tinyweb.formats.onnx.model import OnnxModel

__all__ = ["OnnxModel", "Port"]
