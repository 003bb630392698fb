"""The errors that bad input raises: one clear line each, and one base class to catch."""


class BilmError(ValueError):
    """Base class of every error that bilm raises about its input.

    The message names the file and the line or key, what was found and what was expected, so that
    a command can print it without a traceback.
    """


class OptionsError(BilmError):
    """An options file or value that cannot be used."""


class InvalidNumberOfCharacters(OptionsError):
    """The options of a new run state 262 characters, the number of an export."""


class DataError(BilmError):
    """A corpus, vocabulary or sentence that cannot be used."""


class WeightsError(BilmError):
    """A weight file or checkpoint that cannot be used."""


class NotFiniteError(BilmError):
    """A loss or gradient that is infinite or NaN."""


class OutOfMemoryError(BilmError):
    """The machine or a GPU ran out of memory."""


class HostError(BilmError):
    """Another worker process of a run on several hosts has failed, is gone, or differs."""
