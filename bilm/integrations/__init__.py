"""Vectors in the objects of other libraries, each of which is an extra of this package.

`vectorizer` is a transformer of scikit-learn, `spacy_pipe` a component of spaCy, `shared_models`
holds the models that both name. Imports what `embedding` may import, and `embedding`.
"""
