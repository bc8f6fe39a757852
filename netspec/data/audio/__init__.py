"""WAV files: reading and resampling."""
