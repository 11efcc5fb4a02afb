"""GGUF: models as llama.cpp stores them, in one file with quantised tensors, configuration and tokenizer.

`read` gives what is in a file, `GgufModel` the model it holds in the place of a Hugging Face folder.
"""

from tinyweb.formats.gguf.file import GgufFile, GgufTensor, read
from tinyweb.formats.gguf.model import GgufModel

__all__ = ["GgufFile", "GgufModel", "GgufTensor", "read"]
