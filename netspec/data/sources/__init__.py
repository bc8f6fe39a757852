"""The sources of samples that YAML can name: one file each, found by scan; what reads the bytes is in `readers/`."""
