"""What reads files into arrays. Loaded when a source is opened, never for a mere check of a spec."""
