"""Ordinary works of array code beside PyTorch, to find those that the compiler is slow at."""
