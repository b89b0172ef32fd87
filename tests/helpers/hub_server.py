"""A loopback Hugging Face Hub for tests, on 127.0.0.1, with its repositories in a folder; standard library only.

    with LoopbackHub(tmp_path / "store") as hub:
        subprocess.run([sys.executable, "push.py"], env=hub.client_env(tmp_path / "home"), check=True)

It answers the unmodified `huggingface_hub` client for model repositories:

    whoami, create_repo (409 if it exists), create_branch, model_info, repo_info, list_repo_files, list_repo_tree
    upload_file, upload_folder, create_commit, delete_*: validate-yaml, preupload, LFS batch + PUT + verify, commit
    hf_hub_download, snapshot_download, file_exists: HEAD and GET of /resolve/, ranges included

Any token is accepted, but writing and private repositories require one (401). What does not exist is a 404 with
X-Error-Code RepoNotFound, RevisionNotFound or EntryNotFound. Model cards are not validated. Everything else (pull
requests, tags, datasets, Xet) is a 501, which the client raises at once. `hub.requests` lists (method, path, status) of
responses, `hub.messages` the commit messages by SHA. To simulate failures, set `hub.before`: it is called with each
request and may raise a HubError to refuse it or a ConnectionError to disconnect.

    store/lfs/{sha256}                    LFS uploads, verified against their names
    store/models/{repo}/refs/{branch}     the SHA of the branch's last commit (`private` next to refs/: a private one)
    store/models/{repo}/{sha}/            the files of that commit, hard links to its parent's if unchanged
"""

import base64
import functools
import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

USER = "test-user"  # owner of the token, and of repositories that are created without an owner
LFS_PATTERNS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.onnx", "*.h5", "*.gz", "*.zip")
ROUTES = []


class HubError(Exception):
    def __init__(self, status, message, code=None, **headers):
        super().__init__(message)
        self.status, self.headers = status, headers | {"X_Error_Message": ascii(message)[1:-1]}
        if code:
            self.headers["X_Error_Code"] = code


def inside(folder, name):
    """Return folder/name, or refuse a name that is outside of the folder."""
    if not (path := (folder / name).resolve()).is_relative_to(folder):
        raise HubError(400, f"Invalid path: {name}")
    return path


def is_lfs(name, sample, size):
    return size > 0 and (b"\0" in sample[:512] or size > 10 * 2**20 or any(fnmatch(name, p) for p in LFS_PATTERNS))


@functools.cache  # the files of a commit do not change
def entry(root, path):
    """Return a file or folder of a commit as /tree/ lists it: `oid` is its git hash, `lfs` is set for LFS files."""
    name = path.relative_to(root).as_posix()
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": hashlib.sha1(f"{root}/{name}".encode()).hexdigest()}
    blob = path.read_bytes()
    found = {"type": "file", "path": name, "size": len(blob)}
    if is_lfs(name, blob, len(blob)):  # git has a pointer to it
        sha256 = hashlib.sha256(blob).hexdigest()
        blob = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(blob)}\n".encode()
        found["lfs"] = {"oid": sha256, "sha256": sha256, "size": found["size"], "pointerSize": len(blob)}
    return found | {"oid": hashlib.sha1(b"blob %d\0" % len(blob) + blob).hexdigest()}


class LoopbackHub:
    def __init__(self, store: Path):
        self.store = Path(store).resolve()
        self.requests, self.messages, self.lock = [], {}, threading.Lock()
        self.before = lambda request: None
        self.announced = {}  # sha256 -> size of the LFS uploads that a batch call has announced

    def __enter__(self):
        (self.store / "lfs").mkdir(parents=True, exist_ok=True)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.hub, self.endpoint = self, f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def client_env(self, home: Path, token: str | None = "hf_test") -> dict[str, str]:
        """Return the environment for a process that uses this Hub only."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))}
        env |= {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
        env |= {"HF_HUB_DISABLE_TELEMETRY": "1", "DISABLE_SAFETENSORS_CONVERSION": "1"}
        return env | ({"HF_TOKEN": token} if token else {})

    def commit(self, repo, branch, payload):
        """Apply a commit's operations (NDJSON) to a branch, which is created if necessary; return the new SHA."""
        with self.lock, tempfile.TemporaryDirectory(dir=repo) as tmp:
            new, ref, parent = Path(tmp).resolve() / "tree", repo / "refs" / quote(branch, safe=""), ""
            message = None
            if ref.exists():
                parent = ref.read_text()
                shutil.copytree(repo / parent, new, copy_function=os.link)
            for operation in map(json.loads, payload.splitlines()):
                kind, value = operation["key"], operation["value"]
                if kind == "header":
                    if value.get("parentCommit", parent) != parent:
                        raise HubError(412, "A commit has happened since. Please refresh and try again.")
                    message = value["summary"]
                    continue
                path = inside(new, value["path"])
                if kind == "deletedFolder":
                    shutil.rmtree(path)
                    continue
                path.unlink(missing_ok=kind != "deletedFile")  # replace hard links, never write through them
                path.parent.mkdir(parents=True, exist_ok=True)
                if kind == "file":
                    path.write_bytes(base64.b64decode(value["content"], validate=True))
                elif kind == "lfsFile":
                    os.link(self.lfs_blob(value["oid"], value.get("size")), path)
                elif kind != "deletedFile":
                    raise HubError(501, f"LoopbackHub does not know the operation {kind}")
            for path in sorted(new.rglob("*"), reverse=True):  # git does not track empty folders
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
            sha = hashlib.sha1(parent.encode() + payload).hexdigest()
            if not (repo / sha).exists():  # otherwise another branch has the same commit
                new.rename(repo / sha)
            ref.parent.mkdir(exist_ok=True)
            ref.write_text(sha)
            self.messages[sha] = message
            return sha

    def lfs_blob(self, oid, size=None):
        blob = inside(self.store / "lfs", oid)
        if not blob.is_file() or size not in (None, blob.stat().st_size):
            raise HubError(400, f"LFS object {oid} ({size} bytes) has not been uploaded")
        return blob


def route(method, pattern, token=False):
    """Answer these requests with the JSON that the function returns; with `token`, refuse requests without one."""
    groups = {"repo": r"[\w.-]+(?:/[\w.-]+)?", "rev": "[^/]+", "path": ".+", "oid": "[0-9a-f]{64}"}
    regex = re.compile(re.sub(r"\{(\w+)\}", lambda m: f"(?P<{m[1]}>{groups[m[1]]})", pattern))
    return lambda function: ROUTES.append((method, regex, token, function)) or function


class Handler(BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", -1
    hub = property(lambda self: self.server.hub)
    log_message = lambda *_: None  # noqa: E731

    def dispatch(self):
        self.url, self.body = urlsplit(self.path), self.read_body()
        self.query, self.token = parse_qs(self.url.query), self.headers.get("Authorization")
        try:
            self.hub.before(self)
            for method, regex, token, function in ROUTES:
                if method == self.command.replace("HEAD", "GET") and (match := regex.fullmatch(self.url.path)):
                    arguments = {k: v and unquote(v) for k, v in match.groupdict().items()}
                    if token and not self.token:  # with a code for repositories, which the client infers on https only
                        code = "RepoNotFound" if "rev" in arguments else None
                        raise HubError(401, "Invalid username or password.", code)
                    if (answer := function(self, **arguments)) is not None:
                        self.reply(200, answer)
                    return
            raise HubError(501, f"LoopbackHub does not answer {self.command} {self.url.path}")
        except ConnectionError:  # the client has disconnected
            self.close_connection = True
        except HubError as e:
            self.reply(e.status, {"error": str(e)}, **e.headers)
        except (KeyError, ValueError, OSError) as e:
            self.reply(400, {"error": repr(e)})

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = dispatch

    def read_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size + 2)[:-2]
        self.rfile.readline()
        return body

    def reply(self, status, content, **headers):
        self.hub.requests.append((self.command, self.url.path, status))
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for key, value in ({"Content-Length": len(content)} | headers).items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def repo(self, repo_id, revision="main"):
        """Return the folder of a repository and the commit of a branch or full SHA."""
        repo = inside(self.hub.store / "models", repo_id)
        if not (repo / "refs" / "main").is_file():
            raise HubError(404, "Repository not found", "RepoNotFound")
        if (repo / "private").exists() and not self.token:
            raise HubError(401, "Invalid username or password.", "RepoNotFound")
        if (ref := repo / "refs" / quote(revision, safe="")).is_file():
            return repo, ref.read_text()
        if not re.fullmatch("[0-9a-f]{40}", revision) or not (repo / revision).is_dir():
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return repo, revision

    @route("GET", "/api/whoami-v2", token=True)
    def whoami(self):
        return {"type": "user", "name": USER, "fullname": USER, "orgs": [], "auth": {"accessToken": {"role": "write"}}}

    @route("POST", "/api/validate-yaml")
    def validate_yaml(self):
        return {"errors": [], "warnings": []}

    @route("POST", "/api/repos/create", token=True)
    def create_repo(self):
        asked = json.loads(self.body)
        if asked.get("type", "model") != "model":
            raise HubError(501, "LoopbackHub has model repositories only")
        name = f"{asked['organization'] or USER}/{asked['name']}"
        answer = {"id": name, "name": name, "url": f"{self.hub.endpoint}/{name}"}
        repo = inside(self.hub.store / "models", name)
        if repo.exists():
            return self.reply(409, answer | {"error": "You already created this model repo"})
        repo.mkdir(parents=True)
        if asked.get("visibility") == "private" or asked.get("private"):
            (repo / "private").touch()
        attributes = "".join(f"{p} filter=lfs diff=lfs merge=lfs -text\n" for p in LFS_PATTERNS).encode()
        file = {"path": ".gitattributes", "content": base64.b64encode(attributes).decode()}
        self.hub.commit(repo, "main", json.dumps({"key": "file", "value": file}).encode())
        return answer

    @route("POST", "/api/models/{repo}/branch/{rev}", token=True)
    def create_branch(self, repo, rev):
        repo, sha = self.repo(repo, json.loads(self.body).get("startingPoint", "main"))
        if (ref := repo / "refs" / quote(rev, safe="")).exists():
            raise HubError(409, f"Reference already exists: {rev}")
        ref.write_text(sha)
        return {}

    @route("GET", "/api/models/{repo}(?:/revision/{rev})?")
    def model_info(self, repo, rev):
        folder, sha = self.repo(repo, rev or "main")
        files = [entry(folder / sha, p) for p in sorted((folder / sha).rglob("*")) if p.is_file()]
        siblings = [{"rfilename": f["path"]} for f in files]
        if "blobs" in self.query:
            siblings = [{"rfilename": f["path"], "blobId": f["oid"]} | f for f in files]
        private = (folder / "private").exists()
        return {"id": repo, "sha": sha, "private": private, "gated": False, "tags": [], "siblings": siblings}

    @route("GET", "/api/models/{repo}/tree/{rev}(?:/{path})?")
    def tree(self, repo, rev, path):
        repo, sha = self.repo(repo, rev)
        if not (folder := inside(repo / sha, path or "")).is_dir():
            raise HubError(404, f"{path} does not exist on {rev}", "EntryNotFound", X_Repo_Commit=sha)
        recursive = self.query.get("recursive", [""])[0].lower() in ("true", "1")
        return [entry(repo / sha, p) for p in sorted(folder.rglob("*") if recursive else folder.iterdir())]

    @route("POST", "/api/models/{repo}/preupload/{rev}", token=True)
    def preupload(self, repo, rev):
        (repo, sha), answer = self.repo(repo, rev), []
        for file in json.loads(self.body)["files"]:
            mode = "lfs" if is_lfs(file["path"], base64.b64decode(file["sample"]), file["size"]) else "regular"
            old = entry(repo / sha, p) if (p := inside(repo / sha, file["path"])).is_file() else {}
            oid = old.get("lfs", old).get("oid")  # the client skips unchanged files
            answer.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return {"files": answer}

    @route("POST", "/{repo}.git/info/lfs/objects/batch", token=True)
    def lfs_batch(self, repo):
        self.repo(repo)
        objects = json.loads(self.body)["objects"]
        for o in objects:
            if not inside(self.hub.store / "lfs", o["oid"]).exists():  # otherwise it is already uploaded
                self.hub.announced[o["oid"]] = o["size"]
                hrefs = {"upload": f"/lfs/{o['oid']}", "verify": f"/{repo}.git/info/lfs/verify"}
                o["actions"] = {action: {"href": self.hub.endpoint + href} for action, href in hrefs.items()}
        return {"transfer": "basic", "objects": objects}

    @route("PUT", "/lfs/{oid}")  # without a token: to the client it is a presigned URL
    def lfs_put(self, oid):
        if (len(self.body), hashlib.sha256(self.body).hexdigest()) != (self.hub.announced.get(oid), oid):
            raise HubError(400, f"Not the announced content with sha256 {oid}")
        (self.hub.store / "lfs" / oid).write_bytes(self.body)
        return {}

    @route("POST", "/{repo}.git/info/lfs/verify", token=True)
    def lfs_verify(self, repo):
        self.hub.lfs_blob(**json.loads(self.body))
        return {}

    @route("POST", "/api/models/{repo}/commit/{rev}", token=True)
    def commit(self, repo, rev):
        folder, sha = self.repo(repo, rev)
        if "create_pr" in self.query or sha == rev:
            raise HubError(501, "LoopbackHub commits to branches only")
        sha = self.hub.commit(folder, rev, self.body)
        return {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.endpoint}/{repo}/commit/{sha}"}

    @route("GET", "/{repo}/resolve/{rev}/{path}")
    def resolve(self, repo, rev, path):
        repo, sha = self.repo(repo, rev)
        if not (file := inside(repo / sha, path)).is_file():
            raise HubError(404, "Entry not found", "EntryNotFound", X_Repo_Commit=sha)
        found = entry(repo / sha, file)
        size, etag = found["size"], f'"{found.get("lfs", found)["oid"]}"'
        headers = {"ETag": etag, "X_Repo_Commit": sha, "Accept_Ranges": "bytes"}
        headers |= {"X_Linked_ETag": etag, "X_Linked_Size": size} if "lfs" in found else {}
        if not (asked := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))):
            return self.reply(200, file.read_bytes(), **headers)
        start = int(asked[1]) if asked[1] else max(size - int(asked[2]), 0)
        stop = min(int(asked[2]) + 1, size) if asked[1] and asked[2] else size
        if start >= stop:
            raise HubError(416, "Range not satisfiable", Content_Range=f"bytes */{size}")
        self.reply(206, file.read_bytes()[start:stop], **headers, Content_Range=f"bytes {start}-{stop - 1}/{size}")
