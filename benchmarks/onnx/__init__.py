"""Networks that others export as ONNX graphs: what the tests and the benchmarks run."""
