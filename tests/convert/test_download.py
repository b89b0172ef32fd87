"""Downloads, and how they fail: lost connections, changed files, lying servers, full disks, Ctrl-C."""

import errno
import hashlib
import io
import os
import random
import re
import shutil
import socket
import sys
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

import transformers_elmo.convert.download as downloads
from transformers_elmo.convert.download import download, download_release, open_locked
from transformers_elmo.convert.releases import Release, RemoteFile

HDF5 = b"\x89HDF\r\n\x1a\n"
CONTENT = HDF5 + random.Random(0).randbytes(299_992)
OTHER = HDF5 + random.Random(1).randbytes(299_992)


class Handler(BaseHTTPRequestHandler):
    """Serve `server.content`, in the way that the attributes of the server define."""

    def do_GET(self):
        server, span = self.server, self.headers.get("Range")
        server.seen.append((self.path, span))
        if server.statuses:
            return self.send_error(server.statuses.pop(0))
        if server.redirect and self.path != "/moved":
            return self.answer(302, b"", Location=server.redirect)
        if self.path == "/missing":
            return self.send_error(404)
        if self.path in server.contents:
            return self.answer(200, server.contents[self.path])
        time.sleep(server.pause)
        content, state = server.content, hashlib.md5(server.content).hexdigest()
        state = {"ETag": f'"{state}"'} if server.tags == "strong" else {"ETag": f'W/"{state}"'} if server.tags else {}
        if server.dated:
            state["Last-Modified"] = server.dated
        wanted = self.headers.get("If-Range", "W/")
        is_same = wanted in state.values() and not wanted.startswith("W/")  # weak tags never match
        unchanged = server.ignores_if_range or is_same
        if span and server.ranges and unchanged:
            start = int(re.fullmatch(r"bytes=(\d+)-", span)[1]) + server.shift
            if start >= len(content):
                return self.answer(416, b"", **{"Content-Range": f"bytes */{len(content)}"})
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            return self.answer(206, content[start:], **{"Content-Range": span}, **state)
        self.answer(200, content, **state)

    def answer(self, status, body, **headers):
        server = self.server
        server.answers.append(status)
        sent = body[: server.drops.pop(0)] if body and server.drops else body
        self.send_response(status)
        self.send_header("Content-Type", server.kind)
        if server.sends_length:
            self.send_header("Content-Length", server.length or str(len(body)))
        for name, value in (headers | server.headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "RETRY_DELAYS", ())
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        server.handle_error = lambda *arguments: None  # clients disconnect often
        server.content, server.seen = CONTENT, []
        server.answers = []  # statuses
        server.drops = []  # number of bytes after which the next responses break off
        server.statuses = []  # of the next responses
        server.ranges, server.ignores_if_range, server.tags, server.dated = True, False, "strong", ""
        server.kind, server.length, server.sends_length = "application/octet-stream", None, True
        server.shift, server.pause, server.redirect = 0, 0, ""
        server.headers, server.contents = {}, {}  # of all responses; by path, without ranges
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote(server, path="/file", **known):
    return RemoteFile((server.url + path,), "weights.hdf5", **known)


def assert_fails(file, path, *parts, error=OSError):
    """Assert that a download fails with one sentence that contains the parts, and leaves no file at its path."""
    with pytest.raises(error) as caught:
        download(file, path, progress=False)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message
    for part in parts:
        assert str(part) in message
    assert not path.exists()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.hdf5"


def files(path):
    """Return the names in the folder of a download, without the hash that is kept of it."""
    return sorted(file.name for file in path.parent.iterdir() if file.name != f".{path.name}.sha256")


def spans(server):
    return [span for _, span in server.seen]


def interrupt(server, path, after=100_000):
    """Lose the connection after the first bytes of the file."""
    server.drops = [after]
    assert_fails(remote(server), path, f"{after:,} of 300,000 bytes", "run the same command to resume")
    assert (path.parent / "weights.hdf5.part").stat().st_size == after
    server.seen.clear()


def test_download(server, path):
    known = {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    download(remote(server, **known), path, progress=True)
    assert path.read_bytes() == CONTENT and files(path) == ["weights.hdf5"]
    download(remote(server, **known), path, progress=True)
    download(remote(server), path, progress=True)
    assert spans(server) == [None]


def test_damaged_file_is_downloaded_again(server, path):
    path.write_bytes(OTHER)
    download(remote(server), path, False)
    assert server.seen == []  # a file that was put there by hand, of which nothing is known
    download(remote(server, sha256=hashlib.sha256(CONTENT).hexdigest()), path, False)
    assert path.read_bytes() == CONTENT
    path.write_bytes(CONTENT[:-1])
    download(remote(server, size=len(CONTENT)), path, False)
    assert path.read_bytes() == CONTENT and len(server.seen) == 2
    path.write_bytes(CONTENT[:1000] + b"!" + CONTENT[1001:])  # the hash of the download is known
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and len(server.seen) == 3
    path.with_name(".weights.hdf5.sha256").write_bytes(b"\xff damaged")
    download(remote(server), path, False)
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and len(server.seen) == 4


@pytest.mark.parametrize("tags, dated", [("strong", ""), ("weak", "Sat, 01 Jan 2022 00:00:00 GMT")])
def test_resume_requests_only_the_rest(server, path, tags, dated):
    server.tags, server.dated = tags, dated
    interrupt(server, path)
    download(remote(server, sha256=hashlib.sha256(CONTENT).hexdigest()), path, False)
    assert spans(server) == ["bytes=100000-"] and server.answers == [200, 206]
    assert path.read_bytes() == CONTENT and files(path) == ["weights.hdf5"]


def test_retries_resume(server, path, monkeypatch):
    monkeypatch.setattr(downloads, "RETRY_DELAYS", (0, 0.01, 0.01))
    server.statuses, server.drops = [503], [70_000, 80_000]
    download(remote(server), path, False)
    assert spans(server) == [None, None, "bytes=70000-", "bytes=150000-"]
    assert path.read_bytes() == CONTENT


def test_changed_file_starts_over(server, path):
    for ignores_if_range in (False, True):
        path.unlink(missing_ok=True)
        server.content, server.ignores_if_range = CONTENT, ignores_if_range
        interrupt(server, path)
        server.content = OTHER
        download(remote(server), path, False)
        assert path.read_bytes() == OTHER
        assert spans(server) == ["bytes=100000-", None][: 1 + ignores_if_range]


def test_server_without_ranges_or_with_wrong_ones(server, path):
    interrupt(server, path)
    server.ranges = False
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == ["bytes=100000-"]
    path.unlink()
    server.ranges = True
    interrupt(server, path)
    server.shift = -7
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == ["bytes=100000-", None]


def test_server_without_etag_and_date(server, path):
    server.tags, server.drops = "", [100_000]
    assert_fails(remote(server), path, "100,000 of 300,000 bytes", "start again")
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == [None, None]


def test_server_without_content_length(server, path):
    server.sends_length = False
    download(remote(server, size=len(CONTENT)), path, False)
    assert path.read_bytes() == CONTENT
    path.unlink()
    server.drops = [100_000]
    assert_fails(remote(server, size=len(CONTENT)), path, "must be 300,000 bytes, got 100,000")
    assert files(path) == []


def test_complete_and_overlong_part_files(server, path):
    interrupt(server, path)
    part = path.parent / "weights.hdf5.part"
    part.write_bytes(CONTENT)
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == ["bytes=300000-"]
    path.unlink()
    interrupt(server, path)
    part.write_bytes(CONTENT + b"more")
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == ["bytes=300004-", None]
    assert files(path) == ["weights.hdf5"]


def test_part_file_of_unknown_version(server, path):
    (path.parent / "weights.hdf5.part").write_bytes(OTHER[:1000])
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == [None]


def test_wrong_hash_and_size(server, path):
    right, wrong = hashlib.sha256(CONTENT).hexdigest(), "0" * 64
    assert_fails(remote(server, sha256=wrong), path, wrong, right, "removed")
    assert_fails(remote(server, size=7), path, server.url, "must be 7 bytes, got 300,000")
    server.length = "290000"  # less than it sends
    assert_fails(remote(server, size=len(CONTENT)), path, "must be 300,000 bytes, got 290,000")
    assert files(path) == []


def test_server_errors(server, path):
    assert_fails(remote(server, "/missing"), path, server.url + "/missing", "404 Not Found")
    server.statuses = [403]
    assert_fails(remote(server), path, server.url + "/file", "403 Forbidden")
    server.statuses = [500]
    assert_fails(remote(server), path, "500", "later")
    server.kind = "text/html; charset=utf-8"
    assert_fails(remote(server), path, server.url + "/file", "text/html", "browser")
    for url in ("ftp://127.0.0.1/x", "file:///etc/passwd", "weights.hdf5"):
        assert_fails(RemoteFile((url,), "weights.hdf5"), path, url, "http", error=ValueError)
    assert files(path) == []


def test_login_page_keeps_the_partial_download(server, path):
    interrupt(server, path)
    server.kind, server.ranges = "text/html", False
    assert_fails(remote(server), path, "text/html")
    server.kind, server.ranges = "application/octet-stream", True
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == ["bytes=100000-"] * 2


def test_unreachable_server(server, path, monkeypatch):
    def no_such_host(*arguments, **options):
        raise downloads.urllib.error.URLError(OSError(-2, "Name or service not known"))

    monkeypatch.setattr(downloads, "TIMEOUT", 0.1)
    server.pause = 0.5
    assert_fails(remote(server), path, server.url, "timed out", "network")
    assert_fails(RemoteFile(("http://127.0.0.1:1/x",), "x"), path, "http://127.0.0.1:1/x", "refused")
    monkeypatch.setattr(downloads.urllib.request.OpenerDirector, "open", no_such_host)
    assert_fails(
        RemoteFile(("http://nowhere.invalid/x",), "x"), path, "http://nowhere.invalid/x", "Name or service not known"
    )
    assert files(path) == []


def test_stalled_connection(server, path, monkeypatch):
    finish = Handler.finish
    with monkeypatch.context() as patch:
        patch.setattr(downloads, "TIMEOUT", 0.1)
        patch.setattr(Handler, "finish", lambda self: (time.sleep(0.3), finish(self)))
        server.drops = [100_000]
        assert_fails(remote(server), path, f"{downloads.BLOCK:,} of 300,000 bytes", "resume")
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == [None, f"bytes={downloads.BLOCK}-"]


def test_redirect(server, path):
    server.redirect = server.url + "/moved"
    interrupt(server, path)
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and server.seen[-1] == ("/moved", "bytes=100000-")
    path.unlink()
    server.redirect = "file:///etc/passwd"
    assert_fails(remote(server), path, server.url)


def test_fallback_url(server, path):
    both = (server.url + "/missing", server.url + "/file")
    server.drops = [100_000]
    assert_fails(RemoteFile(both, "weights.hdf5"), path, server.url + "/file", "100,000 of 300,000")
    download(RemoteFile(both, "weights.hdf5"), path, False)
    assert path.read_bytes() == CONTENT and server.seen[-1] == ("/file", "bytes=100000-")
    path.unlink()
    both = (server.url + "/missing", server.url + "/missing?2")
    server.statuses = [404, 403]
    assert_fails(RemoteFile(both, "weights.hdf5"), path, both[0], "404")


def test_disk_full(server, path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=200_000))
        assert_fails(remote(server), path, path.parent, "300,000", "200,000", "another folder")
    assert files(path) == []
    interrupt(server, path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=200_000))
    download(remote(server), path, False)  # the rest fits
    assert path.read_bytes() == CONTENT


def test_keyboard_interrupt(server, path, monkeypatch):
    class Bar(downloads.tqdm):
        def update(self, number):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(downloads, "tqdm", Bar)
        download(remote(server), path, False)
    server.seen.clear()
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == [f"bytes={downloads.BLOCK}-"]


def test_concurrent_downloads(server, path):
    with open_locked(path.parent / "weights.hdf5.part"):
        assert_fails(remote(server), path, "another process")
    assert server.seen == []
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT

    path.unlink()
    server.pause, outcomes = 0.1, []

    def run():
        try:
            download(remote(server), path, False)
            outcomes.append("done")
        except OSError as error:
            outcomes.append("another process" in str(error))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "done" in outcomes and False not in outcomes
    assert path.read_bytes() == CONTENT and files(path) == ["weights.hdf5"]


def test_progress_bar(server, path, monkeypatch, capsys):
    download(remote(server), path)
    assert capsys.readouterr() == ("", "")
    path.unlink()
    interrupt(server, path)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    download(remote(server), path)
    shown = capsys.readouterr().err
    assert "weights.hdf5: 100%" in shown and "300k/300k" in shown and "B/s" in shown
    path.unlink()
    download(remote(server), path, progress=False)
    assert capsys.readouterr().err == ""


def test_download_release(server, tmp_path):
    def release_of(*names):
        return Release("it", "", None, None, "", tuple(RemoteFile((f"{server.url}/{name}",), name) for name in names))

    server.contents = {"/options.json": b" {}", "/42.zip": zipped("x"), "/x.tar.gz": b"\x1f\x8b..."}
    folder = tmp_path / "new" / "folder"
    assert download_release(release_of("options.json", "weights.hdf5"), folder, False) == folder / "it"
    assert download_release(release_of("42.zip"), str(folder), False) == folder / "it" / "42.zip"
    assert download_release(release_of("x.tar.gz"), str(folder), False) == folder / "it" / "x.tar.gz"
    names = ["42.zip", "options.json", "weights.hdf5", "x.tar.gz"]
    assert sorted(os.listdir(folder / "it")) == [*(f".{name}.sha256" for name in names), *names]


def zipped(name: str, content: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


# Servers that lie


def test_mirrors_are_tried_in_turn(server, path):
    """A mirror with a file of another size, hash or format is passed over."""
    known = {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    server.contents = {"/short": CONTENT[:-1], "/other": OTHER, "/page": b"<html>not found"}
    urls = [server.url + name for name in ("/missing", "/short", "/other", "/page", "/file", "/never")]
    download(RemoteFile(tuple(urls), "weights.hdf5", **known), path, False)
    assert path.read_bytes() == CONTENT
    assert [path for path, _ in server.seen] == ["/missing", "/short", "/other", "/page", "/file"]
    path.unlink()
    download(RemoteFile(tuple(urls[3:]), "weights.hdf5"), path, False)  # nothing was published but its name
    assert path.read_bytes() == CONTENT
    path.unlink()
    assert_fails(RemoteFile(tuple(urls[:4]), "weights.hdf5", **known), path, urls[0], "404")
    assert files(path) == []


def test_part_of_one_mirror_is_not_completed_by_another(server, path):
    """Two mirrors with the same date have different files."""
    server.tags, server.dated = "", "Sat, 01 Jan 2022 00:00:00 GMT"
    interrupt(server, path)
    server.content = OTHER
    download(RemoteFile((server.url + "/mirror",), "weights.hdf5"), path, False)
    assert path.read_bytes() == OTHER and server.seen == [("/mirror", None)]
    path.unlink()
    server.content = CONTENT
    interrupt(server, path)
    download(RemoteFile((server.url + "/mirror", server.url + "/file"), "weights.hdf5"), path, False)
    assert path.read_bytes() == CONTENT and server.seen == [("/file", "bytes=100000-")]  # where it started


@pytest.mark.parametrize(
    "name, content, part",
    [
        ("1.zip", b"<!DOCTYPE html>", "zip archive"),
        ("1.zip", zipped("x", CONTENT)[:-30], "zip archive"),
        ("1.zip", b"", "zip archive"),
        ("x.tar.gz", zipped("x"), "gzip"),
        ("weights.hdf5", b"version https://git-lfs.github.com/spec/v1", "HDF5"),
        ("options.json", b"<html>", "JSON"),
        ("options.json", b"[]", "JSON"),
    ],
    ids=lambda value: str(value)[:20],  # a zip archive contains the time
)
def test_other_format_than_the_name_says(server, tmp_path, name, content, part):
    """An error page or a pointer that is sent as a file."""
    server.content = content
    path = tmp_path / name
    assert_fails(RemoteFile((f"{server.url}/file",), name), path, server.url, part, "browser")
    path.write_bytes(content)  # in the cache
    with pytest.raises(OSError, match=part):
        download(RemoteFile((f"{server.url}/file",), name), path, False)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "br", "deflate", "GZIP"])
def test_content_encoding(server, path, encoding):
    server.headers = {"Content-Encoding": encoding}
    assert_fails(remote(server), path, server.url, "compressed")
    assert files(path) == []
    if "gzip" in encoding.lower():  # some servers declare an archive so
        server.contents = {"/x.tar.gz": b"\x1f\x8b..."}
        download(RemoteFile((server.url + "/x.tar.gz",), "x.tar.gz"), path.with_name("x.tar.gz"), False)


@pytest.mark.parametrize("length", ["nonsense", "-5", "9" * 30, "9" * 5000, "1e3", "٣٠٠"])
def test_content_length_that_is_no_number(server, path, length):
    """It is ignored if it says nothing, and refused if it says too much."""
    server.length = length.encode("utf-8").decode("latin-1")
    server.handle_error = lambda *arguments: None
    try:
        download(remote(server, size=len(CONTENT)), path, False)
        assert path.read_bytes() == CONTENT
    except OSError as error:
        assert str(error).endswith(".") and "\n" not in str(error) and not path.exists()


def test_too_much(server, path, monkeypatch):
    server.length = str(10**15)
    assert_fails(remote(server), path, server.url, "at most 20,000,000,000 bytes", "announces 1,000,000,000,000,000")
    server.length = None
    monkeypatch.setattr(downloads, "MAX_SIZE", 200_000)
    assert_fails(remote(server), path, "at most 200,000 bytes", "announces 300,000")
    server.sends_length = False
    assert_fails(remote(server), path, "at most 200,000 bytes", "sent more")
    assert_fails(remote(server, size=100_000), path, "at most 100,000 bytes", "sent more")
    monkeypatch.undo()
    monkeypatch.setattr(downloads, "RETRY_DELAYS", ())
    server.headers = {"Content-Range": "bytes 0-9/10"}  # ten bytes, and then more
    assert_fails(remote(server), path, "at most 10 bytes", "sent more")
    assert files(path) == []


@pytest.mark.parametrize(
    "span",
    ["bytes 5-9/10", "bytes */300000", "bytes 0-9", "items 0-9/10", "bytes 0-9/*", "bytes 0-9/" + "9" * 5000],
)
def test_odd_ranges(server, path, span):
    interrupt(server, path)
    server.headers = {"Content-Range": span}
    server.ranges = False
    try:
        download(remote(server), path, False)
        assert path.read_bytes() == CONTENT
    except OSError as error:
        assert str(error).endswith(".") and not path.exists()
    server.headers, server.ranges = {}, True
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("tag", ["a\x80b", "\x7f", "x" * 9000, '"'])
def test_odd_etags(server, path, tag):
    server.headers, server.tags, server.drops = {"ETag": tag}, "", [100_000]
    with pytest.raises(OSError, match="lost after"):
        download(remote(server), path, False)
    server.headers = {}
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT


def test_damaged_version_file(server, path):
    interrupt(server, path)
    for content in (b"\xff\xfe", b"", b"a\nb\nc", f"{server.url}/file\n\x00\r".encode()):
        path.with_name("weights.hdf5.part.version").write_bytes(content)
        server.drops = [50_000]
        with pytest.raises(OSError, match="lost after 50,000"):
            download(remote(server), path, False)
    assert spans(server) == [None] * 4


@pytest.mark.parametrize(
    "location",
    ["/file", "http://[bad", "http:///x", "\x80", "https://127.0.0.1:1/x", "ftp://127.0.0.1:1", "http://x y/"],
)
def test_redirects_that_lead_nowhere(server, path, location):
    server.redirect = location
    assert_fails(remote(server), path, server.url)
    assert len(server.seen) <= 11  # a redirect to itself is followed a few times
    assert files(path) == []


def test_redirect_from_https_to_http():
    follow = downloads.Redirects().redirect_request
    for old, new in (("http", "http"), ("http", "https"), ("https", "https")):
        request = downloads.urllib.request.Request(f"{old}://example.org/a")
        assert follow(request, None, 302, "Found", {}, f"{new}://example.org/b").full_url == f"{new}://example.org/b"
    for new in ("http", "HTTP", "ftp"):
        request = downloads.urllib.request.Request("https://example.org/a")
        with pytest.raises(downloads.DownloadError, match="a must be downloaded over https"):
            follow(request, None, 302, "Found", {}, f"{new}://example.org/b")


def test_proxy(server, path, monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", server.url)
    download(RemoteFile(("http://nowhere.invalid/file",), "weights.hdf5"), path, False)
    assert path.read_bytes() == CONTENT and server.seen == [("http://nowhere.invalid/file", None)]


def test_disk_that_is_full_during_the_download(server, path, monkeypatch):
    def no_space(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    server.sends_length = False
    monkeypatch.setattr(downloads, "read_all", no_space)
    assert_fails(remote(server), path, path, "No space left")


def test_nonsense_instead_of_http(path, monkeypatch):
    """Servers of other protocols, which send any bytes and hang up."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "RETRY_DELAYS", ())
    replies = [b"", b"220 ftp\r\n", b"\x00\xff" * 99, b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000]
    replies += [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200, b"HTTP/1.1 200 \x1b[31m\r\nContent-Type: \x1b/\x1b\r\n\r\n"]
    replies += [b"HTTP/1.1 404 \x1b[31m\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
    replies += [b"HTTP/1.1 302 Found\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 599 What\r\n\r\n"]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for reply in replies:
                with listener.accept()[0] as connection:
                    connection.recv(4096)
                    connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        for _ in replies:
            with pytest.raises(OSError) as caught:
                download(RemoteFile((url,), "weights.hdf5"), path, False)
            message = str(caught.value)
            assert message.endswith(".") and message.isprintable() and url in message and not path.exists()
        thread.join()
