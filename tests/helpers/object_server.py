"""An S3 server on loopback (moto) for tests; it requires the packages of `.venv-engines`."""

import logging
from contextlib import contextmanager

import pytest

BUCKET = "corpora"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_server(monkeypatch):
    """Run moto's server with a bucket, and let the AWS client use it."""
    moto, s3fs = (pytest.importorskip(name) for name in ("moto.server", "s3fs"))
    logging.getLogger("werkzeug").setLevel("ERROR")
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}).items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()  # instances keep the address
    s3fs.S3FileSystem().makedirs(BUCKET, exist_ok=True)
    yield
    server.stop()
