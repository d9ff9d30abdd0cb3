"""Matrix instructions: MFMA and WMMA, their fragments and operand loads."""
