"""What a spec is written with: expressions, blocks, repetition, include, overrides."""
