"""From parsed instructions to functions that execute them."""
