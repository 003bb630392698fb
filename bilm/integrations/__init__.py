"""Stored models as objects of other libraries, each of which is an extra of this package.

`vectorizer` is a transformer for scikit-learn, `spacy_pipe` a component for spaCy and
`sentence_module` a module for sentence-transformers.
"""
