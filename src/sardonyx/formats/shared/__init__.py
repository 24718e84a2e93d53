"""What the model formats share: sources of bytes, records of graphs and how they are linked, checks, whole files."""
