"""Perplexity, log-probabilities of sentences, and likely substitutes of a word.

`scorer` loads a language model and computes probabilities with it, and `perplexity` evaluates
held-out text. `filling` fills gaps.
Imports `storage` and everything below it.
"""
