"""Operations along sequences: linear recurrences and causal convolutions."""
