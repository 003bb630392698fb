"""Log-probabilities of sentences, perplexity, likely words at a position, and gap filling.

`scorer` computes `scores` of sentences with a stored language model, which predicts
`predicted_words`. `perplexity` summarizes them; `verdict` compares it with that of `ngrams`.
`filling` fills gaps. `memory` predicts words from similar contexts of the training text.
"""
