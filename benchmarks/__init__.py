"""Speed of the embedded chat model on every backend: `make bench`."""
