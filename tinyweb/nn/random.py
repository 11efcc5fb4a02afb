"""Random words and the noise made of them, for models that keep track of keys and counters themselves."""

from tinyweb.array.threefry import Generator, exponential, gumbel, threefry, words

__all__ = ["Generator", "exponential", "gumbel", "threefry", "words"]
