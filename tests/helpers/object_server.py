"""An S3 server on loopback (moto) for tests, and a proxy in front of it that misbehaves on request.

Tests that use it require the packages of `.venv-engines`.
"""

import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

BUCKET = "corpora"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
UNAVAILABLE = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n"
)
SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def s3_server(log: Path, **environment: str):
    """Run moto's server; yield its address. `environment` has more variables for it."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with open(log, "wb") as file:
        server = subprocess.Popen(
            command, stdout=file, stderr=file, env=os.environ | CREDENTIALS | environment
        )
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with suppress(OSError), urllib.request.urlopen(f"{address}/moto-api/") as answer:
                if answer.status == 200:
                    break
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
        yield address
    finally:
        server.kill()
        server.wait()


def client(address: str):
    """Return a client of boto3."""
    import boto3

    return boto3.client(
        "s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )  # fmt: skip


class Proxy:
    """A TCP proxy in front of a server, for answers that are cut, refused or blocked.

    Attributes, which a test may change at any time:
        cut_after: number of bytes of an answer after which its connection is closed; None for
            whole answers.
        n_cuts: number of answers that are still to be cut.
        n_refused: number of requests that are still to be answered with 503.
        pattern: regular expression that a request must match to be cut or refused.
        requests: first line and headers of each request so far.
    """

    def __init__(self, address: str):
        self.target = ("127.0.0.1", int(address.rpartition(":")[2]))
        self.cut_after: int | None = None
        self.n_cuts = self.n_refused = 0
        self.pattern = ""
        self.requests: list[str] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                incoming, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[incoming], daemon=True).start()

    def _serve(self, incoming: socket.socket) -> None:
        """Forward the requests of a connection; decide for each one what happens to its answer."""
        with suppress(OSError), incoming, socket.create_connection(self.target) as outgoing:
            limit = [None]
            back = threading.Thread(
                target=self._answer, args=(outgoing, incoming, limit), daemon=True
            )
            back.start()
            while data := incoming.recv(1 << 16):
                head = data.split(b"\r\n\r\n")[0].decode("latin-1")
                if re.match(r"(GET|HEAD|PUT|POST|DELETE) ", head):
                    with self._lock:
                        self.requests.append(head)
                        matches = re.search(self.pattern, head) is not None
                        if matches and self.n_refused > 0:
                            self.n_refused -= 1
                            body = b"" if head.startswith("HEAD") else SLOW_DOWN
                            incoming.sendall(UNAVAILABLE % len(body) + body)
                            break
                        is_cut = matches and self.n_cuts > 0 and self.cut_after is not None
                        self.n_cuts -= is_cut
                        limit[0] = self.cut_after if is_cut else None
                outgoing.sendall(data)
            with suppress(OSError):
                incoming.shutdown(socket.SHUT_RDWR)

    def _answer(self, outgoing: socket.socket, incoming: socket.socket, limit: list) -> None:
        with suppress(OSError):
            while data := outgoing.recv(1 << 16):
                if limit[0] is not None:
                    data = data[: limit[0]]
                    limit[0] -= len(data)
                incoming.sendall(data)
                if limit[0] == 0:
                    break
            incoming.shutdown(socket.SHUT_RDWR)
