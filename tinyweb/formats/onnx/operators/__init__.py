"""Operators of ONNX by family: functions of a call and its inputs."""
