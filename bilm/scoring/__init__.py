"""Perplexity, log-probabilities of sentences, and likely substitutes of a word.

`scorer` computes probabilities with a language model, `load` loads the model, and `perplexity`
evaluates held-out text. Imports `storage` and everything below it.
"""
