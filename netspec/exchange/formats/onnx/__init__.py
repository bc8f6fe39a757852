"""ONNX files: read to operator graphs, written from them, and verified in onnxruntime."""
