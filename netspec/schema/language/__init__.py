"""Parts of the spec language: expressions, blocks, repetition, include, overrides."""
