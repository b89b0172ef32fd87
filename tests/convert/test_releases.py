"""The table of released ELMos, and the download on bad days: lost connections, changed files, full disks, Ctrl-C."""

import hashlib
import os
import random
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from transformers_elmo.convert import releases
from transformers_elmo.convert.releases import (
    RELEASES,
    Release,
    RemoteFile,
    download,
    download_release,
    find_release,
    open_alone,
)

CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)


class Handler(BaseHTTPRequestHandler):
    """Serves `server.content` in the way the attributes of the server say."""

    def do_GET(self):
        server, span = self.server, self.headers.get("Range")
        server.seen.append((self.path, span))
        if server.statuses:
            return self.send_error(server.statuses.pop(0))
        if server.redirect and self.path != "/moved":
            return self.answer(302, b"", Location=server.redirect)
        if self.path == "/missing":
            return self.send_error(404)
        time.sleep(server.pause)
        content, state = server.content, hashlib.md5(server.content).hexdigest()
        state = {"ETag": f'"{state}"'} if server.tags == "strong" else {"ETag": f'W/"{state}"'} if server.tags else {}
        if server.dated:
            state["Last-Modified"] = server.dated
        unchanged = server.ignores_if_range or self.headers.get("If-Range") in state.values()
        if span and server.ranges and unchanged:
            start = int(re.fullmatch(r"bytes=(\d+)-", span)[1]) + server.shift
            if start >= len(content):
                return self.answer(416, b"", **{"Content-Range": f"bytes */{len(content)}"})
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            return self.answer(206, content[start:], **{"Content-Range": span}, **state)
        self.answer(200, content, **state)

    def answer(self, status, body, **headers):
        server = self.server
        sent = body[: server.drops.pop(0)] if body and server.drops else body
        self.send_response(status)
        self.send_header("Content-Type", server.kind)
        if server.tells_length:
            self.send_header("Content-Length", server.length or str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(releases, "RETRY_DELAYS", ())
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        server.handle_error = lambda *arguments: None  # we hang up on it often
        server.content, server.seen = CONTENT, []
        server.drops = []  # of the next answers, send so many bytes only
        server.statuses = []  # of the next answers
        server.ranges, server.ignores_if_range, server.tags, server.dated = True, False, "strong", ""
        server.kind, server.length, server.tells_length = "application/octet-stream", None, True
        server.shift, server.pause, server.redirect = 0, 0, ""
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote(server, path="/file", **known):
    return RemoteFile((server.url + path,), "weights.hdf5", **known)


def fails(file, path, *parts, error=OSError):
    """The download fails with one sentence that holds the parts, and nothing stands under the file's name."""
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
    return sorted(file.name for file in path.parent.iterdir())


def spans(server):
    return [span for _, span in server.seen]


def interrupt(server, path, after=100_000):
    """Leave the first bytes of the file, as a lost connection does."""
    server.drops = [after]
    fails(remote(server), path, f"{after:,} of 300,000 bytes", "the same command goes on from there")
    assert (path.parent / "weights.hdf5.part").stat().st_size == after
    server.seen.clear()


def test_whole(server, path):
    known = {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    download(remote(server, **known), path, progress=True)
    assert path.read_bytes() == CONTENT and files(path) == ["weights.hdf5"]
    download(remote(server, **known), path, progress=True)
    download(remote(server), path, progress=True)
    assert spans(server) == [None]


def test_a_damaged_file_is_downloaded_again(server, path):
    path.write_bytes(OTHER)
    download(remote(server), path, False)
    assert server.seen == []  # nothing is known of the file: it is taken for whole
    download(remote(server, sha256=hashlib.sha256(CONTENT).hexdigest()), path, False)
    assert path.read_bytes() == CONTENT
    path.write_bytes(CONTENT[:-1])
    download(remote(server, size=len(CONTENT)), path, False)
    assert path.read_bytes() == CONTENT and len(server.seen) == 2


@pytest.mark.parametrize("tags, dated", [("strong", ""), ("weak", "Sat, 01 Jan 2022 00:00:00 GMT")])
def test_resume_asks_for_the_rest_only(server, path, tags, dated):
    server.tags, server.dated = tags, dated
    interrupt(server, path)
    download(remote(server, sha256=hashlib.sha256(CONTENT).hexdigest()), path, False)
    assert spans(server) == ["bytes=100000-"]
    assert path.read_bytes() == CONTENT and files(path) == ["weights.hdf5"]


def test_retries_go_on_too(server, path, monkeypatch):
    monkeypatch.setattr(releases, "RETRY_DELAYS", (0, 0.01, 0.01))
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


def test_server_that_names_no_state(server, path):
    server.tags, server.drops = "", [100_000]
    fails(remote(server), path, "100,000 of 300,000 bytes", "starts again")
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == [None, None]


def test_server_that_tells_no_length(server, path):
    server.tells_length = False
    download(remote(server, size=len(CONTENT)), path, False)
    assert path.read_bytes() == CONTENT
    path.unlink()
    server.drops = [100_000]
    fails(remote(server, size=len(CONTENT)), path, "must be 300,000 bytes, got 100,000")
    assert files(path) == []


def test_complete_and_too_long_parts(server, path):
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


def test_part_of_unknown_origin(server, path):
    (path.parent / "weights.hdf5.part").write_bytes(OTHER[:1000])
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == [None]


def test_wrong_hash_and_size(server, path):
    right, wrong = hashlib.sha256(CONTENT).hexdigest(), "0" * 64
    fails(remote(server, sha256=wrong), path, wrong, right, "removed")
    fails(remote(server, size=7), path, server.url, "must be 7 bytes, got 300,000")
    server.length = "290000"  # it announces less than it sends
    fails(remote(server, size=len(CONTENT)), path, "must be 300,000 bytes, got 290,000")
    assert files(path) == []


def test_refusals(server, path):
    fails(remote(server, "/missing"), path, server.url + "/missing", "404 Not Found")
    server.statuses = [403]
    fails(remote(server), path, server.url + "/file", "403 Forbidden")
    server.statuses = [500]
    fails(remote(server), path, "500", "later")
    server.kind = "text/html; charset=utf-8"
    fails(remote(server), path, server.url + "/file", "text/html", "browser")
    for url in ("ftp://127.0.0.1/x", "file:///etc/passwd", "weights.hdf5"):
        fails(RemoteFile((url,), "weights.hdf5"), path, url, "http", error=ValueError)
    assert files(path) == []


def test_a_login_page_does_not_cost_what_has_come(server, path):
    interrupt(server, path)
    server.kind, server.ranges = "text/html", False
    fails(remote(server), path, "text/html")
    server.kind, server.ranges = "application/octet-stream", True
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == ["bytes=100000-"] * 2


def test_unreachable(server, path, monkeypatch):
    def no_such_host(*arguments, **options):
        raise releases.urllib.error.URLError(OSError(-2, "Name or service not known"))

    monkeypatch.setattr(releases, "TIMEOUT", 0.1)
    server.pause = 0.5
    fails(remote(server), path, server.url, "timed out", "network")
    fails(RemoteFile(("http://127.0.0.1:1/x",), "x"), path, "http://127.0.0.1:1/x", "refused")
    monkeypatch.setattr(releases.urllib.request, "urlopen", no_such_host)
    fails(RemoteFile(("http://nowhere.invalid/x",), "x"), path, "http://nowhere.invalid/x", "Name or service not known")
    assert files(path) == []


def test_stalled_connection(server, path, monkeypatch):
    finish = Handler.finish
    with monkeypatch.context() as patch:
        patch.setattr(releases, "TIMEOUT", 0.1)
        patch.setattr(Handler, "finish", lambda self: (time.sleep(0.3), finish(self)))
        server.drops = [100_000]
        fails(remote(server), path, f"{releases.BLOCK:,} of 300,000 bytes", "goes on")
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == [None, f"bytes={releases.BLOCK}-"]


def test_redirect(server, path):
    server.redirect = server.url + "/moved"
    interrupt(server, path)
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and server.seen[-1] == ("/moved", "bytes=100000-")
    path.unlink()
    server.redirect = "file:///etc/passwd"
    fails(remote(server), path, server.url)


def test_second_address(server, path):
    both = (server.url + "/missing", server.url + "/file")
    server.drops = [100_000]
    fails(RemoteFile(both, "weights.hdf5"), path, server.url + "/file", "100,000 of 300,000")
    download(RemoteFile(both, "weights.hdf5"), path, False)
    assert path.read_bytes() == CONTENT and server.seen[-1] == ("/file", "bytes=100000-")
    path.unlink()
    both = (server.url + "/missing", server.url + "/missing?2")
    server.statuses = [404, 403]
    fails(RemoteFile(both, "weights.hdf5"), path, both[0], "404")


def test_disk_full(server, path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(releases.shutil, "disk_usage", lambda folder: SimpleNamespace(free=200_000))
        fails(remote(server), path, path.parent, "300,000", "200,000", "another folder")
    assert files(path) == []
    interrupt(server, path)
    monkeypatch.setattr(releases.shutil, "disk_usage", lambda folder: SimpleNamespace(free=200_000))
    download(remote(server), path, False)  # the rest fits
    assert path.read_bytes() == CONTENT


def test_interrupt_of_the_user(server, path, monkeypatch):
    class Bar(releases.tqdm):
        def update(self, number):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(releases, "tqdm", Bar)
        download(remote(server), path, False)
    server.seen.clear()
    download(remote(server), path, False)
    assert path.read_bytes() == CONTENT and spans(server) == [f"bytes={releases.BLOCK}-"]


def test_two_at_once(server, path):
    with open_alone(path.parent / "weights.hdf5.part"):
        fails(remote(server), path, "another process")
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


def test_bar(server, path, monkeypatch, capsys):
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


def test_release(server, tmp_path):
    def made_of(*names):
        return Release("it", "", None, None, "", tuple(RemoteFile((f"{server.url}/{name}",), name) for name in names))

    folder = tmp_path / "new" / "folder"
    assert download_release(made_of("options.json", "weights.hdf5"), folder, False) == folder / "it"
    assert download_release(made_of("42.zip"), str(folder), False) == folder / "it" / "42.zip"
    assert sorted(os.listdir(folder / "it")) == ["42.zip", "options.json", "weights.hdf5"]


def test_table():
    assert len(RELEASES) == 12 + 12 + 44
    archives = []
    for name, release in RELEASES.items():
        assert name == release.name and re.fullmatch(r"[a-z0-9.-]+", name)
        assert re.fullmatch(r"[a-z]{2}|grc", release.language)
        assert release.license in (None, "mit", "bsd-2-clause", "cc-by-4.0")
        assert release.description and release.homepage.startswith("http")
        names = [file.name for file in release.files]
        assert names in (
            ["options.json", "weights.hdf5"],
            ["options.json", "weights.hdf5", "softmax.hdf5", "vocab.txt"],
            [f"{names[0][:-4]}.zip"],
        )
        archives += names if len(names) == 1 else []
        for file in release.files:
            assert file.urls and len(set(file.urls)) == len(file.urls)
            assert all(re.fullmatch(r"https?://[a-z0-9.-]+/[\w./-]+", url) for url in file.urls)
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
    addresses = [url for file in {f for release in RELEASES.values() for f in release.files} for url in file.urls]
    assert len(set(addresses)) == len(addresses) and len(set(archives)) == len(archives)
    weights = RELEASES["small"].files[1]
    assert weights.size == 54_402_456
    assert weights.sha256 == "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229"
    assert RELEASES["many-langs-catalan"].files[0].urls == ("http://vectors.nlpl.eu/repository/11/138.zip",)


@pytest.mark.parametrize(
    "name, near",
    [
        ("smal", "small"),
        ("Original", "original-5.5b"),
        ("catalan", "many-langs-catalan"),
        ("", "small"),
        ("?", "small"),
    ],
)
def test_unknown_name(name, near):
    assert find_release("small") is RELEASES["small"]
    with pytest.raises(ValueError, match="--list") as caught:
        find_release(name)
    assert repr(name) in str(caught.value) and near in str(caught.value)
