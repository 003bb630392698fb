"""The names of `allennlp.modules.elmo` and `allennlp.commands.elmo`: see `bilm.compat.allennlp`."""

from bilm.compat.allennlp import Elmo, ElmoEmbedder, _ElmoBiLm, batch_to_ids

__all__ = ["Elmo", "ElmoEmbedder", "_ElmoBiLm", "batch_to_ids"]
