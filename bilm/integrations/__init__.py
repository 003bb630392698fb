"""Vectors in the objects of other libraries. Each library is an extra of this package.

`vectorizer` is a transformer for scikit-learn, `spacy_pipe` is a component for spaCy, and
`shared_models` loads their models, and those of flair. Imports `embedding` and everything below it.
"""
