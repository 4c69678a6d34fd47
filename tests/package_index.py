"""A package index on this machine, as pip sees it, with one wheel in it; what it serves can be cut short."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME, VERSION = "unsay-test-model", "1.0"
WHEEL = "unsay_test_model-1.0-py3-none-any.whl"
MEMBER = "unsay_test_model/tiny.gguf"


def make_wheel(content: bytes) -> bytes:
    """A wheel that holds `content` as its only file."""
    info = "unsay_test_model-1.0.dist-info"
    files = {
        MEMBER: content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for name, data in files.items():
            bundle.writestr(name, data)
    return buffer.getvalue()


class Index:
    """What is served and what was asked. cut_at: bytes of the wheel after which a connection breaks, per request.

    serves_ranges: whether Range headers are obeyed. ranges: the Range header of every request for the wheel.
    """

    def __init__(self, wheel: bytes) -> None:
        self.wheel = wheel
        self.metadata = _metadata_of(wheel)
        self.cut_at: list[int] = []
        self.serves_ranges = True
        self.ranges: list[str | None] = []
        self.url = ""

    def page(self) -> bytes:
        """The project page of the simple index, with the metadata beside the wheel (PEP 658)."""
        wheel_hash, metadata_hash = (hashlib.sha256(data).hexdigest() for data in (self.wheel, self.metadata))
        beside = f'data-core-metadata="sha256={metadata_hash}" data-dist-info-metadata="sha256={metadata_hash}"'
        link = f'<a href="/{WHEEL}#sha256={wheel_hash}" {beside}>{WHEEL}</a>'
        return f"<!DOCTYPE html><html><body>{link}</body></html>".encode()


@contextmanager
def serve(wheel: bytes) -> Generator[Index]:
    """Serve the wheel on a free port of this machine."""
    index = Index(wheel)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == f"/{WHEEL}":
                _send_wheel(self, index)
            elif self.path == f"/{WHEEL}.metadata":
                _send(self, index.metadata, "application/octet-stream")
            else:
                _send(self, index.page(), "text/html")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _send_wheel(handler: BaseHTTPRequestHandler, index: Index) -> None:
    asked = handler.headers.get("Range")
    index.ranges.append(asked)
    found = re.fullmatch(r"bytes=(\d+)-", asked or "") if index.serves_ranges else None
    start = int(found[1]) if found else 0
    body = index.wheel[start:]
    handler.send_response(206 if found else 200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: index.cut_at.pop(0)] if index.cut_at else body)


def _send(handler: BaseHTTPRequestHandler, body: bytes, kind: str) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _metadata_of(wheel: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(wheel)) as bundle:
        name = next(name for name in bundle.namelist() if name.endswith("METADATA"))
        return bundle.read(name)
