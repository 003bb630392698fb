"""Perplexity, log-probabilities of sentences, and likely substitutes of a word.

`scorer` loads a language model and computes probabilities with it, and `perplexity` evaluates
held-out text. `filling` fills `gaps`, for which it compares candidates with fitted `exponents`.
`memory` predicts words from similar contexts of the training text.
Imports `storage` and everything below it.
"""
