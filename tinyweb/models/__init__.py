"""Models, one readable file or folder each; `load` reads what works on texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyweb.models.decoder import ModelSource
    from tinyweb.nn.precision import Recipe


def load(
    source: str | Path | ModelSource, quant: str | Recipe | None = None, context: int | None = None,
    device: str | Sequence[str] | None = None, activations: str | None = None, cache: str | None = None,
) -> Any:  # fmt: skip
    """Reads a model of texts, by the architecture that its config.json names: a language model
    (`models.decoder.Decoder`), what makes vectors of texts (`models.embedding.Embedder`): an encoder, or any network in
    a folder of sentence-transformers; or an encoder that gives
    scores of pairs (`models.reranking.Reranker`); or a model of texts and pictures (`models.image_text.ImageText`), of
    a folder with the tower of pictures only an `ImageEmbedder`.

    `source`: a Hugging Face folder or a GGUF file, here or on the hub (tinyweb/sources), or what offers the same.
    `quant`, `device`, `activations`: as of `models.decoder.load`, as is `cache`, which only language models have.
    `context`: tokens of the longest text. Of several devices, language models are divided among them.

    Raises ModelFormatError for what is missing, damaged or of an architecture that is not known; TinywebError for an
    option that cannot be.
    """
    # other models do without these modules
    from tinyweb.formats.onnx.folder import OnnxFolder
    from tinyweb.formats.source import open_model
    from tinyweb.models import decoder, encoder
    from tinyweb.models.encoder.architectures.image_text import is_image_text
    from tinyweb.models.encoder.head import has_head
    from tinyweb.sources import CHAT, locate

    folder: Any = source
    if isinstance(source, str | Path):
        folder = open_model(locate(source, CHAT.in_precision(quant if isinstance(quant, str) else None)))
    if device is not None and not isinstance(device, str):
        device = ",".join(device)
    if device is not None and "," in device and not is_decoder(folder):
        raise NotImplementedError(f"{device}: only language models are divided among several devices")
    if is_image_text(folder.config):
        from tinyweb.models.image_text import load_image_text

        return load_image_text(folder, quant, device, activations, max_length=context)
    if encoder.is_encoder(folder.config) and has_head(folder.config):
        from tinyweb.models.reranking import Reranker

        return Reranker.from_folder(folder, quant, device, activations, max_length=context)
    if encoder.is_encoder(folder.config) or is_embedder(folder):
        from tinyweb.models.embedding import Embedder

        return Embedder.from_folder(folder, quant, device, activations, max_length=context)
    if isinstance(folder, OnnxFolder):
        from tinyweb.models.onnx_decoder import load_graph

        return load_graph(folder, quant if isinstance(quant, str) else None, context, device, cache)
    return decoder.load(folder, quant, context, device, activations, cache)


def is_decoder(folder: Any) -> bool:
    """Whether a model is a language model of our own network."""
    from tinyweb.formats.onnx.folder import OnnxFolder
    from tinyweb.models import encoder
    from tinyweb.models.encoder.architectures.image_text import is_image_text

    other = is_image_text(folder.config) or encoder.is_encoder(folder.config) or is_embedder(folder)
    return not other and not isinstance(folder, OnnxFolder)


def is_embedder(folder: Any) -> bool:
    """Whether a model is laid out as sentence-transformers does it, whatever its network."""
    from tinyweb.formats.huggingface import ModelFolder

    return isinstance(folder, ModelFolder) and folder.text("modules.json") is not None
