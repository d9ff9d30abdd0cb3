"""An example of a Tilewright backend: Tile IR to C, compiled by the system's compiler."""
