"""A local web server that serves a model, and wrong responses under `/odd/`."""

import shutil
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from stored_files import OPTIONS, WEIGHTS


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, and under `/odd/NAME` the response of the method NAME."""

    asked: ClassVar[list[str]] = []

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

    def short(self):
        self.answer(b"x" * 1000, Content_Length="2000")

    def short_without_length(self):
        self.answer(WEIGHTS.read_bytes()[:-100])

    def html(self):
        self.answer(b"<html>Please log in</html>", Content_Type="text/html")

    def file(self):
        self.answer(status=302, Location="file:///etc/passwd")

    def moved(self):
        self.answer(status=302, Location="/weights.hdf5")

    def log_message(self, *arguments):
        pass


@contextmanager
def serving(folder):
    """Create a folder with a model, serve it and yield its address."""
    folder.mkdir()
    for path in (OPTIONS, WEIGHTS):
        shutil.copy(path, folder)
    Handler.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()
