"""A Hugging Face hub on this machine, for tests: its API, its file addresses, its storage of large files on another host
(here another port), and its faults. Python's own library alone.

Source of addresses and headers: huggingface_hub 2.4 (hf_api.py, file_download.py), what the hub answers to it.
"""

import hashlib
import json
import ssl
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = (".safetensors", ".parquet")


def git_blob_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def etag_of(name, content):
    return hashlib.sha256(content).hexdigest() if name.endswith(LARGE) else git_blob_hash(content)


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
    stalls: object = None  # with cut_after: set half_sent, and wait for this threading.Event


class Hub:
    """Two servers in threads: the hub and its storage. `with Hub() as hub`."""

    def __init__(self, certificate=None):
        """certificate: file of a certificate and its key; the hub then speaks HTTPS."""
        self.certificate = certificate
        self.repositories = {}  # "models/owner/name" or "datasets/owner/name" -> Repository
        self.faults = {}  # file name -> list of Fault; "" for the API
        self.log = []  # (host, method, path, headers)
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
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, host))
        if self.certificate and host == "hub":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


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
                return self.send_bytes(content, fault, {"ETag": f'"{etag_of(file, content)}"', "X-Repo-Commit": found.commit})
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
            begin = 0
            wanted = self.headers.get("Range", "")
            if wanted.startswith("bytes=") and not fault.ignores_range:
                begin = int(wanted[len("bytes="):].split("-")[0])
            if begin >= len(content) > 0:
                return self.refuse(416)
            if fault.is_damaged:
                content = content[:-1] + bytes([content[-1] ^ 1])
            self.send_response(206 if begin else 200)
            for name, value in headers.items():
                self.send_header(name, value)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - begin))
            self.end_headers()
            if self.command == "HEAD":
                return None
            if fault.cut_after < 0:
                self.wfile.write(content[begin:])
                return None
            self.wfile.write(content[begin:begin + fault.cut_after])
            self.wfile.flush()
            if fault.stalls is not None:
                hub.half_sent.set()
                fault.stalls.wait(300)
            self.close_connection = True
            return None

    return Handler
