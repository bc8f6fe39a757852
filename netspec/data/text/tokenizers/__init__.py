"""Tokenizers that YAML can name: one file each, found by scan; `data/text/tokens.py` implements them."""
