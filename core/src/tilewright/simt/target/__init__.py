"""What a backend says of its hardware, and what follows from it alone: copy mechanisms, matmul
plans, costs."""
