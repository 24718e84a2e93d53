"""File formats: bytes to the graph IR and back."""
