"""What each operator means: signature, shape rule and NumPy evaluation, one file per family."""
