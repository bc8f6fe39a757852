"""Dense, embedding, masking, dropout and identity layers."""
