"""Process groups: what carries arrays and messages between workers."""
