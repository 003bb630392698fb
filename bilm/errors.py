"""The errors that bad input ends in: one clear line each, and one base class to catch."""


class BilmError(ValueError):
    """Base of every error that bilm raises about its input.

    The message names the file, the line or key, what was found and what is expected, so that a
    command can print it alone.
    """


class OptionsError(BilmError):
    """An options file or value that cannot be used."""


class InvalidNumberOfCharacters(OptionsError):
    """`n_characters` is not what is needed: 261 in training, 261 or 262 in a stored model."""


class DataError(BilmError):
    """A corpus, vocabulary or sentence that cannot be used."""


class WeightsError(BilmError):
    """A weight file or checkpoint that cannot be used."""


class NotFiniteError(BilmError):
    """A loss or a gradient that is infinite or no number."""


class OutOfMemoryError(BilmError):
    """The memory of the machine or of a GPU does not suffice."""
