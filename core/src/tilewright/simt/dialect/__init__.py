"""What the toolkit adds to Tile IR: operations (:mod:`.ops`), types, attributes that passes leave
for later ones, and the interfaces of operations."""
