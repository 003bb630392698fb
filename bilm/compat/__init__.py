"""Interfaces of other programs, for programs that were written for them.

`bilm_tf` and `bilm_tf_training` have the names of bilm-tf, `simple_elmo` those of simple_elmo, and
`allennlp` those of AllenNLP's ELMo. Programs import them from `bilm`, `bilm.model`, `bilm.elmo`,
`bilm.training`, `bilm.simple_elmo` and `bilm.allennlp`. Programs import the others directly:
`tfhub`, `manylangs` and `flair`.
"""
