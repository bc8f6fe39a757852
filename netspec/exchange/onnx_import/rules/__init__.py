"""What each ONNX operator becomes, one family a file. A file put here is found by itself."""
