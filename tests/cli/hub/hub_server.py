"""A Hugging Face hub on this machine, for tests: its API, its file addresses, its storage of large files on another host
(here another port), and its faults. Python's own library alone.

Source of addresses and headers: huggingface_hub 2.4 (hf_api.py, file_download.py), what the hub answers to it.
"""

import contextlib
import hashlib
import json
import ssl
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = (".safetensors", ".parquet")


def git_blob_hash(content):
    if isinstance(content, Hollow):
        return "0" * 40
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def etag_of(name, content):
    if isinstance(content, Hollow):
        return hashlib.sha256(name.encode()).hexdigest()
    return hashlib.sha256(content).hexdigest() if name.endswith(LARGE) else git_blob_hash(content)


class Hollow:
    """A large file: zeros but for some bytes."""

    def __init__(self, size, parts):
        """parts: {offset: bytes}, sorted."""
        self.size, self.parts = size, parts

    def __len__(self):
        return self.size

    def __getitem__(self, wanted):
        begin, end, _ = wanted.indices(self.size)
        result = bytearray(end - begin)
        for offset, part in self.parts.items():
            first, last = max(begin, offset), min(end, offset + len(part))
            if first < last:
                result[first - begin:last - begin] = part[first - offset:last - offset]
        return bytes(result)


@dataclass
class Repository:
    files: dict  # name -> bytes
    commit: str = "0123456789abcdef0123456789abcdef01234567"
    revisions: tuple = ("main",)
    token: str = ""  # whoever reads it must show this
    is_gated: bool = False


@dataclass
class Fault:
    """What happens to the next requests for a file's bytes; each is used once."""

    status: int = 0  # answer with this, and with these headers
    headers: dict = field(default_factory=dict)
    cut_after: int = -1  # send so many bytes, then close the connection
    is_damaged: bool = False  # turn a bit of the last byte
    ignores_range: bool = False
    shifted_by: int = 0  # sends a range that begins so many bytes later
    stalls: object = None  # with cut_after: set half_sent, and wait for this threading.Event


class Hub:
    """Two servers in threads: the hub and its storage. `with Hub() as hub`."""

    def __init__(self, certificate=None):
        """certificate: file of a certificate and its key; the hub then speaks HTTPS."""
        self.certificate = certificate
        self.repositories = {}  # "models/owner/name" or "datasets/owner/name" -> Repository
        self.etags = {}  # file name -> what the hub says instead of its hash
        self.faults = {}  # file name -> list of Fault; "" for the API
        self.log = []  # (host, method, path, headers)
        self.sent = 0  # bytes of files
        self.half_sent = threading.Event()
        self.changed = threading.Condition()

    def __enter__(self):
        self.hub = self._serve("hub")
        self.storage = self._serve("storage")
        return self

    def __exit__(self, *_):
        for server in (self.hub, self.storage):
            server.shutdown()
            server.server_close()

    @property
    def endpoint(self):
        return f"http{'s' if self.certificate else ''}://127.0.0.1:{self.hub.server_port}"

    def requests(self, method=None, host=None, ending=""):
        return [one for one in list(self.log)
                if method in (None, one[1]) and host in (None, one[0]) and one[2].endswith(ending)]

    def await_request(self, method, ending):
        """Returns when such a request has come."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.requests(method, ending=ending), timeout=300), f"no {method} {ending}"

    def _serve(self, host):
        server = _Server(("127.0.0.1", 0), _handler(self, host))
        if self.certificate and host == "hub":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


class _Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """A client that hangs up is no fault of the server."""


def _handler(hub, host):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            self.answer()

        def do_HEAD(self):
            self.answer()

        def answer(self):
            address = urllib.parse.urlsplit(self.path)  # a proxy gets the whole one
            path = address.path
            is_storage = host == "storage" or address.port == hub.storage.server_port
            with hub.changed:
                hub.log.append(("storage" if is_storage else "hub", self.command, path, dict(self.headers)))
                hub.changed.notify_all()
            parts = urllib.parse.unquote(path).strip("/").split("/")
            if is_storage:
                return self.send_stored(parts)
            if parts[0] == "api":
                return self.send_listing(parts[1] + "/" + "/".join(parts[2:4]), parts[4:])
            kind = "datasets" if parts[0] == "datasets" else "models"
            rest = parts[1:] if kind == "datasets" else parts
            return self.send_file(f"{kind}/{rest[0]}/{rest[1]}", rest[3], "/".join(rest[4:]))

        def refuse(self, status, code="", message="", headers=()):
            body = json.dumps({"error": message}).encode()
            self.send_response(status)
            for name, value in dict(headers).items():
                self.send_header(name, value)
            if code:
                self.send_header("X-Error-Code", code)
            if message:
                self.send_header("X-Error-Message", message)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def repository(self, name):
            """The repository if the request may read it; answers otherwise."""
            found = hub.repositories.get(name)
            shown = self.headers.get("Authorization", "")
            if found is None:
                self.refuse(401, "RepoNotFound", "Invalid username or password.")
                return None
            if found.is_gated and shown != f"Bearer {found.token}":
                self.refuse(403 if shown else 401, "GatedRepo", "Access to model is restricted.")
                return None
            if found.token and shown != f"Bearer {found.token}":
                self.refuse(401, "RepoNotFound", "Invalid username or password.")
                return None
            return found

        def fault(self, name):
            waiting = hub.faults.get(name)
            return waiting.pop(0) if waiting else Fault()

        def send_listing(self, name, rest):
            fault = self.fault("")
            if fault.status:
                return self.refuse(fault.status, headers=fault.headers)
            found = self.repository(name)
            if found is None:
                return None
            revision = "/".join(rest[1:]) if rest else "main"
            if revision not in found.revisions and revision != found.commit:
                return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            if rest and rest[0] == "tree":  # huggingface_hub's list of files; rest: tree, revision
                listing = [self.entry(file, content) for file, content in found.files.items()]
            else:
                listing = {"id": name.split("/", 1)[1], "sha": found.commit,
                           "siblings": [{"rfilename": file} for file in found.files]}
            body = json.dumps(listing).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

        @staticmethod
        def entry(file, content):
            entry = {"type": "file", "path": file, "size": len(content), "oid": git_blob_hash(content)}
            if file.endswith(LARGE):
                entry["lfs"] = {"oid": etag_of(file, content), "size": len(content), "pointerSize": 134}
            return entry

        def send_file(self, name, revision, file):
            found = self.repository(name)
            if found is None:
                return None
            if revision not in (*found.revisions, found.commit):
                return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            content = found.files.get(file)
            if content is None:
                return self.refuse(404, "EntryNotFound", "Entry not found")
            fault = self.fault(file) if self.command == "GET" and not file.endswith(LARGE) else Fault()
            if fault.status:
                return self.refuse(fault.status, headers=fault.headers)
            if not file.endswith(LARGE):
                return self.send_bytes(content, fault, {"ETag": f'"{hub.etags.get(file, etag_of(file, content))}"', "X-Repo-Commit": found.commit})
            self.send_response(302)
            self.send_header("X-Repo-Commit", found.commit)
            self.send_header("X-Linked-ETag", f'"{etag_of(file, content)}"')
            self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("ETag", '"of-the-redirect"')
            self.send_header("Location", f"http://127.0.0.1:{hub.storage.server_port}/{name}/{file}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None

        def send_stored(self, parts):
            name, file = "/".join(parts[:3]), "/".join(parts[3:])
            fault = self.fault(file)
            if fault.status:
                return self.refuse(fault.status, headers=fault.headers)
            return self.send_bytes(hub.repositories[name].files[file], fault, {"ETag": '"of-the-storage"'})

        def send_bytes(self, content, fault, headers):
            begin, end = 0, len(content)
            wanted = self.headers.get("Range", "")
            is_range = wanted.startswith("bytes=") and not fault.ignores_range
            if is_range:
                first, last = wanted[len("bytes="):].split("-")
                begin, end = int(first) + fault.shifted_by, min(int(last or end) + 1, end)
            if begin >= len(content) > 0:
                return self.refuse(416)
            if fault.is_damaged:
                content = content[:-1] + bytes([content[-1] ^ 1])
            self.send_response(206 if is_range else 200)
            for name, value in headers.items():
                self.send_header(name, value)
            if is_range:
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
            self.send_header("Content-Length", str(end - begin))
            self.end_headers()
            if self.command == "HEAD":
                return None
            if fault.cut_after >= 0:
                end = min(end, begin + fault.cut_after)
            # A client that does not want so much of a large file hangs up.
            with contextlib.suppress(ConnectionError):
                for part in range(begin, end, 1 << 20):
                    self.wfile.write(content[part:min(part + (1 << 20), end)])
            with hub.changed:
                hub.sent += end - begin
            if fault.cut_after < 0:
                return None
            self.wfile.flush()
            if fault.stalls is not None:
                hub.half_sent.set()
                fault.stalls.wait(300)
            self.close_connection = True
            return None

    return Handler
