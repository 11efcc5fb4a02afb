"""GGUF: models as llama.cpp stores them, in one file with quantised tensors, configuration and tokenizer."""

from tinyweb.formats.gguf.file import GgufFile, GgufTensor, read

__all__ = ["GgufFile", "GgufTensor", "read"]
