"""The class of the package simple_elmo: see `bilm.compat.simple_elmo`."""

from bilm.compat.simple_elmo import ElmoModel

__all__ = ["ElmoModel"]
