"""Generation of texts, token by token."""
