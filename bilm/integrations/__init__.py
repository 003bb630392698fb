"""Vectors in the objects of other libraries. Each library is an extra of this package.

`vectorizer` is a transformer for scikit-learn, `spacy_pipe` is a component for spaCy, and
`shared_models` loads the models of both. Imports `embedding` and everything below it.
"""
