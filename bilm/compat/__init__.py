"""Interfaces of other programs. Programs import those of bilm-tf, simple_elmo and AllenNLP from
`bilm`, `bilm.model`, `bilm.elmo`, `bilm.training`, `bilm.simple_elmo` and `bilm.allennlp`, and
`tfhub`, `manylangs` and `flair` directly.
"""
