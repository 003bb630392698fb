"""Errors about input. Each message is one line, and all errors have one base class."""

from collections.abc import Iterable


class BilmError(ValueError):
    """Base class of all errors that bilm raises about its input. The message names the file and the
    line or key, what was found and what was expected. Commands print it without a traceback."""


class OptionsError(BilmError):
    """An options file or value that cannot be used."""


class ArgumentError(OptionsError):
    """Arguments of a function, or options of a command, that contradict each other."""


class InvalidNumberOfCharacters(OptionsError):
    """The options of a new run have 262 characters, which is the number of an export."""


class DataError(BilmError):
    """A corpus, vocabulary or sentence that cannot be used."""


class WeightsError(BilmError):
    """A weight file or checkpoint that cannot be used."""


class NotFiniteError(BilmError):
    """A loss or gradient that is infinite or NaN."""


class OutOfMemoryError(BilmError):
    """The machine or a GPU ran out of memory."""


class HostError(BilmError):
    """Another worker process of a run on several hosts failed, disappeared or differs."""


def require_one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """Raise OptionsError unless the value of an argument is one of the allowed values."""
    allowed = list(allowed)
    if value not in allowed:
        raise OptionsError(f"{name} is {value!r}, expected one of {', '.join(map(str, allowed))}")
