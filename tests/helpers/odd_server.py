"""A local web server that serves a model, and harmful responses under `/odd/`."""

import gzip
import shutil
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from stored_files import OPTIONS, WEIGHTS


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, and under `/odd/NAME` the harmful response of the method NAME."""

    asked: ClassVar[list[str]] = []
    gone: ClassVar[threading.Event] = threading.Event()

    def do_GET(self):
        self.asked.append(self.path)
        if self.path.startswith("/odd/"):
            getattr(self, self.path.removeprefix("/odd/").partition(".")[0])()
        else:
            super().do_GET()

    def answer(self, body=b"", status=200, **header):
        self.send_response(status)
        for name, value in header.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def drops(self, piece, seconds=20):
        """Send a piece repeatedly until the client disconnects or the time is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.gone.wait(0.05):
            self.wfile.write(piece)
            self.wfile.flush()

    def short(self):
        self.answer(b"x" * 1000, Content_Length="2000")

    def short_without_length(self):
        self.answer(WEIGHTS.read_bytes()[:-100])

    def short_chunked(self):
        self.protocol_version = "HTTP/1.1"
        self.answer(b"400\r\n" + b"x" * 100, Transfer_Encoding="chunked")

    def gone_for_ever(self):
        self.send_error(410)

    def empty(self):
        self.answer(Content_Length="0")

    def html(self):
        self.answer(b"<html>Please log in</html>", Content_Type="text/html")

    def packed(self):
        self.answer(gzip.compress(WEIGHTS.read_bytes()), Content_Encoding="gzip")

    def silent(self):
        self.gone.wait(20)

    def stalled(self):
        self.answer(b"x" * 1000, Content_Length="2000")
        self.gone.wait(20)

    def trickle(self):
        self.answer(Content_Length="1000000")
        self.drops(b"x")

    def trickle_of_header(self):
        self.wfile.write(b"HTTP/1.0 200 OK\r\nX-Long: ")
        self.drops(b"x")

    def endless(self):
        self.answer()
        while True:
            self.wfile.write(b"\x89HDF" * 250)

    def huge(self):
        self.answer(Content_Length=str(1 << 40))

    def ftp(self):
        self.answer(status=302, Location="ftp://127.0.0.1/weights.hdf5")

    def file(self):
        self.answer(status=302, Location="file:///etc/passwd")

    def circle(self):
        self.answer(status=302, Location=self.path)

    def moved(self):
        self.answer(status=302, Location="/weights.hdf5")

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *arguments):
        """Ignore clients that disconnect."""


@contextmanager
def serving(folder):
    """Create a folder with a model, serve it and yield its address."""
    folder.mkdir()
    for path in (OPTIONS, WEIGHTS):
        shutil.copy(path, folder)
    Handler.asked = []
    Handler.gone.clear()
    with Server(("127.0.0.1", 0), partial(Handler, directory=folder)) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        Handler.gone.set()
        httpd.shutdown()
        thread.join()
