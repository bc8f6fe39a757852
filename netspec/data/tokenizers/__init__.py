"""What makes numbers of text, as YAML names it: one file each, found by scan; the work is in `readers/tokens.py`."""
