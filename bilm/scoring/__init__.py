"""Perplexity, log-probabilities of sentences, and likely substitutes of a word.

`scorer` loads a language model and computes probabilities with it, `surprisal` converts them to
bits per word, and `perplexity` evaluates held-out text. `adaptation` scores a text with a model
that adapts to it. Imports `storage` and everything below it.
"""
