"""Text as tokens: tokenizers, corpora and windows of running text."""
