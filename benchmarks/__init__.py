"""Speed, measured against peers in one run: `make bench`; docs/benchmarks.md says how to read it."""
