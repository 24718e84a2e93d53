"""What is run: steps over buffers, and the tables they become."""
