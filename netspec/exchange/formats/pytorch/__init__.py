"""PyTorch: state dicts, trainings in safetensors files, and why pickles are refused."""
