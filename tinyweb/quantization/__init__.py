"""Quantisation of a model's weights: widths, groups and zero points, fitted to a text, mixed by size, and measured.

    from tinyweb.quantization import ChatReader, QuantOptions, quantise

    load = lambda recipe: ChatReader(models.load(folder, recipe, context=512), tokenizer)
    made = quantise(load, "q4", QuantOptions(calibrate=Path("text.txt")))
    made.reader.model, made.report.record()

- `options`: what may be asked, and what goes together.
- `methods`: rounding with scales of least error, and with error feedback (GPTQ); `descent`: what is left to gain after
  it; `scaling`: of channels (AWQ).
- `calibration`: what matrices are multiplied with while the model reads a text.
- `mixed`: bits for each matrix within so many bytes.
- `texts`, `reader`: text files as blocks of tokens, and how kinds of models read them.
- `evaluation`, `report`: perplexity and agreement with f32, and what is written about it.
- `prepare`: all of it one after the other.
"""

from tinyweb.quantization.options import QuantOptions
from tinyweb.quantization.prepare import Quantised, quantise
from tinyweb.quantization.reader import ChatReader, EmbedReader
from tinyweb.quantization.report import LayerReport, Report

__all__ = ["ChatReader", "EmbedReader", "LayerReport", "QuantOptions", "Quantised", "Report", "quantise"]
