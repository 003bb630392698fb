"""What a URL of http or https holds, from a server that may be slow, hostile or broken.

The standard library does: it reads what has come without waiting for more (`read1`), which a floor
on the rate needs, and a chain of handlers without FTP and files follows no redirect to them.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Event, Timer
from typing import NamedTuple
from urllib import request
from urllib.error import HTTPError

from absl import logging

from bilm.errors import WeightsError

PIECE = 1 << 18  # bytes read at once, at most
LOG_SECONDS = 5


class Patience(NamedTuple):
    """How long a server may take.

    Fields:
        seconds: to connect, to answer, and between two pieces.
        rate: bytes a second, the least over each such time.
    """

    seconds: float
    rate: int


PATIENCE = Patience(seconds=30.0, rate=8 << 10)


def pieces(url: str, max_bytes: int, patience: Patience) -> Iterator[bytes]:
    """Yield the body of a URL as it comes.

    Args:
        url: http or https.
        max_bytes: the most that is taken.
        patience: how long the server may take.
    Raises: WeightsError if it cannot be fetched, is cut short, too large or too slow.
    """
    try:
        with _opener().open(url, timeout=patience.seconds) as answer:
            coding = answer.headers.get("Content-Encoding", "identity")
            if coding.lower() != "identity":
                raise WeightsError(f"{url}: comes packed as {coding}; expected it as it is")
            yield from _body(url, answer, max_bytes, patience)
    except WeightsError:
        raise
    except (OSError, HTTPException, ValueError) as error:  # ValueError: no URL
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        reason = " ".join(str(error).split())  # that of a redirection in a circle has lines
        raise WeightsError(f"{url}: not in the cache, and cannot be fetched: {reason}") from error


def _body(url: str, answer: HTTPResponse, max_bytes: int, patience: Patience) -> Iterator[bytes]:
    length, n_bytes, n_before = answer.length, 0, 0
    start = logged = time.monotonic()
    if (length or 0) > max_bytes:
        raise WeightsError(f"{url}: has {length:,} bytes, expected at most {max_bytes:,}")
    while length is None or n_bytes < length:
        piece = answer.read1(PIECE if length is None else min(PIECE, length - n_bytes))
        if not piece:
            break
        n_bytes += len(piece)
        if n_bytes > max_bytes:
            raise WeightsError(f"{url}: has more than {max_bytes:,} bytes, the most expected")
        yield piece
        now = time.monotonic()
        if now - start > patience.seconds:
            if n_bytes - n_before < patience.rate * (now - start):
                rate = (n_bytes - n_before) / (now - start)
                raise WeightsError(
                    f"{url}: {rate:,.0f} bytes a second came, expected {patience.rate:,} or more"
                )
            start, n_before = now, n_bytes
        if now - logged > LOG_SECONDS:
            logging.info("%s: %.1f MB of %s", url, n_bytes / 1e6, length and f"{length / 1e6:.1f}")
            logged = now
    if length is not None and n_bytes < length:
        raise WeightsError(f"{url}: {n_bytes:,} of {length:,} bytes came; cut short")


class _Punctual:
    """Of a connection: its answer is there in time, also if the header comes in drops."""

    def getresponse(self) -> HTTPResponse:
        late = Event()

        def hang_up() -> None:
            late.set()
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

        alarm = Timer(self.timeout, hang_up)
        alarm.start()
        answer = None
        try:
            answer = super().getresponse()
        except (OSError, HTTPException):
            if not late.is_set():
                raise
        finally:
            alarm.cancel()
        if late.is_set():
            if answer is not None:  # with what had come of the header
                answer.close()
            raise TimeoutError(f"no answer in {self.timeout:g} s")
        return answer


class _Plain(_Punctual, HTTPConnection):
    pass


class _Encrypted(_Punctual, HTTPSConnection):
    pass


class _PlainHandler(request.HTTPHandler):
    def http_open(self, asked: request.Request) -> HTTPResponse:
        return self.do_open(_Plain, asked)


class _EncryptedHandler(request.HTTPSHandler):
    def https_open(self, asked: request.Request) -> HTTPResponse:
        return self.do_open(_Encrypted, asked)


def _opener() -> request.OpenerDirector:
    """Return what opens http and https alone, wherever it is sent."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.UnknownHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPRedirectHandler,
        request.HTTPErrorProcessor,
        _PlainHandler,
        _EncryptedHandler,
    ):
        opener.add_handler(handler())
    return opener
