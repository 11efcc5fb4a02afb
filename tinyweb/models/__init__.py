"""Models, one readable file each."""
