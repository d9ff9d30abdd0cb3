"""Operations on rows: norms, softmax, losses, activations."""
