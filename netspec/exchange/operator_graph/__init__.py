"""The graph of operators that all formats share: nodes in ONNX's vocabulary, as plain data."""
