"""Choosing tokens: what decoders of text do with the scores of a model, apart from how the model is run."""
