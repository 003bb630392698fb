"""Downloading an http or https URL from a server that may be slow, hostile or broken.

This module uses only the standard library. `read1` returns the bytes that have arrived without
waiting for more, so that a minimum rate can be checked. The opener has no handlers for FTP and
files, so it does not follow redirects to them.
"""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Event, Timer
from typing import NamedTuple
from urllib import request
from urllib.error import HTTPError
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from absl import logging

from bilm.errors import WeightsError
from bilm.support.urls import masked

PIECE = 1 << 18  # bytes read at once, at most
LOG_SECONDS = 5


class Patience(NamedTuple):
    """How long a server may take.

    Fields:
        seconds: to connect, to answer, and between two pieces.
        rate: minimum number of bytes per second, over each period of `seconds`.
    """

    seconds: float
    rate: int


PATIENCE = Patience(seconds=30.0, rate=8 << 10)


def pieces(url: str, max_bytes: int, patience: Patience) -> Iterator[bytes]:
    """Yield the body of a URL as it arrives.

    Args:
        url: http or https.
        max_bytes: the largest size accepted.
        patience: how long the server may take.
    Raises: WeightsError if the download fails, is cut short, too large or too slow.
    """
    shown = masked(url)
    try:
        with _opener().open(_request(url), timeout=patience.seconds) as answer:
            coding = answer.headers.get("Content-Encoding", "identity")
            if coding.lower() != "identity":
                raise WeightsError(f"{shown}: compressed as {coding}, expected no compression")
            yield from _body(shown, answer, max_bytes, patience)
    except WeightsError:
        raise
    except (OSError, HTTPException, ValueError) as error:  # ValueError: not a URL
        if isinstance(error, HTTPError):
            error.close()  # closes the connection
        reason = masked(" ".join(str(error).split()))  # a circular redirect has several lines
        raise WeightsError(
            f"{shown}: not in the cache, and cannot be downloaded: {reason}"
        ) from error


def head(url: str, patience: Patience = PATIENCE) -> int | None:
    """Ask a server for the size of a file without downloading it.

    Returns: the size in bytes; None if the server does not state it.
    Raises: WeightsError if the server cannot be reached, or if the file does not exist.
    """
    try:
        with _opener().open(_request(url, "HEAD"), timeout=patience.seconds) as answer:
            length = answer.headers.get("Content-Length", "")
            return int(length) if length.isdecimal() else None
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise WeightsError(masked(" ".join(str(error).split()))) from error


def _request(url: str, method: str | None = None) -> request.Request:
    """Return the request for a URL, whose user and password become a header.

    The header is not sent to an address that the server redirects to.
    """
    parts = urlsplit(url)
    user, found, host = parts.netloc.rpartition("@")
    made = request.Request(urlunsplit(parts._replace(netloc=host)), method=method)
    if found:
        code = base64.b64encode(unquote_to_bytes(user)).decode()
        made.add_unredirected_header("Authorization", f"Basic {code}")
    return made


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
            raise WeightsError(f"{url}: exceeds the expected maximum of {max_bytes:,} bytes")
        yield piece
        now = time.monotonic()
        if now - start > patience.seconds:
            if n_bytes - n_before < patience.rate * (now - start):
                rate = (n_bytes - n_before) / (now - start)
                raise WeightsError(
                    f"{url}: {rate:,.0f} bytes per second, expected at least {patience.rate:,}"
                )
            start, n_before = now, n_bytes
        if now - logged > LOG_SECONDS:
            total = f" of {length / 1e6:.1f} MB" if length else ""
            logging.info("%s: %.1f MB%s", url, n_bytes / 1e6, total)
            logged = now
    if length is not None and n_bytes < length:
        raise WeightsError(
            f"{url}: received {n_bytes:,} of {length:,} bytes; the connection ended early"
        )


class _WithDeadline(HTTPConnection):
    """A connection that limits the time to the end of the header, however slowly that arrives."""

    def getresponse(self) -> HTTPResponse:
        timed_out = Event()

        def disconnect() -> None:
            timed_out.set()
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

        timeout = float(self.timeout or 0)
        timer = Timer(timeout, disconnect)
        timer.start()
        answer = None
        try:
            answer = super().getresponse()
        except (OSError, HTTPException):
            if not timed_out.is_set():
                raise
        finally:
            timer.cancel()
        if answer is None or timed_out.is_set():
            if answer is not None:  # the header may be incomplete
                answer.close()
            raise TimeoutError(f"no answer in {timeout:g} s")
        return answer


class _Https(_WithDeadline, HTTPSConnection):
    pass


class _HttpHandler(request.HTTPHandler):
    def http_open(self, req: request.Request) -> HTTPResponse:
        return self.do_open(_WithDeadline, req)


class _HttpsHandler(request.HTTPSHandler):
    def https_open(self, req: request.Request) -> HTTPResponse:
        return self.do_open(_Https, req)


def _opener() -> request.OpenerDirector:
    """Return an opener for http and https only, also after redirects."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.UnknownHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPRedirectHandler,
        request.HTTPErrorProcessor,
        _HttpHandler,
        _HttpsHandler,
    ):
        opener.add_handler(handler())
    return opener
