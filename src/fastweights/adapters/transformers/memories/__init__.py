"""The memories of transformers' models, one per file."""
