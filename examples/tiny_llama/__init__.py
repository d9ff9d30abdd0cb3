"""A tiny Llama of characters, trained on the documentation that Python's library ships."""
