"""Runtimes: allocate, copy, compile, launch, synchronise — one folder per kind of machine."""
