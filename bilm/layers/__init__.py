"""Keras layers of the biLM; they take plain arguments and know no options file."""
