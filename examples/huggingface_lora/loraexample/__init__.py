"""A LoRA adapter on a tiny transformer that reads digits as 64 words."""
