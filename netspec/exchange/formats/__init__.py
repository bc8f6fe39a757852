"""File formats, one subpackage per family; `registry` lists them."""
