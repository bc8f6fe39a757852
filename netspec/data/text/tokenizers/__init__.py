"""Tokenizers that YAML can name: one module each, found by scanning. `data/text/tokens.py` implements them."""
