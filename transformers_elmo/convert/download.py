# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Download released ELMos: from one mirror after the other, resuming where an interrupted download stopped.

A file is accepted if it has the size and the SHA-256 that were published, where they were, and the format of its name.
Its own SHA-256 is kept in `.NAME.sha256`, so that a file which is damaged later is downloaded again.
"""

import contextlib
import http.client
import os
import re
import sys
import time
import urllib.error
import urllib.request
import zipfile
from email.message import Message
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from tqdm import tqdm

from ..files import check_space, one_line, sentence_errors, sha256_of
from .releases import Release, RemoteFile

TIMEOUT = 30  # seconds without a byte
RETRY_DELAYS = (1, 3, 9)  # seconds
BLOCK = 1 << 16  # bytes; at most one block is lost with the connection
MAX_SIZE = 20 * 10**9  # bytes; the largest release has a tenth of it
FORMATS = {  # by suffix: its name and how it begins
    ".zip": ("a zip archive", rb"PK"),
    ".gz": ("a gzip archive", rb"\x1f\x8b"),
    ".hdf5": ("an HDF5 file", rb"\x89HDF\r\n\x1a\n"),
    ".json": ("JSON", rb"\s*\{"),
}


class DownloadError(OSError):
    """A failed attempt at one URL: whether to retry it, and the number of bytes received so far."""

    def __init__(self, message: str, retry: bool = False, received: int = 0):
        super().__init__(message)
        self.retry, self.received = retry, received


def download_release(release: Release, folder: str | Path, progress: bool = True) -> Path:
    """Download a release to `folder`/NAME; return the path to convert: that folder, or the archive in it."""
    target = Path(folder) / release.name
    target.mkdir(parents=True, exist_ok=True)
    for file in release.files:
        try:
            download(file, target / file.name, progress)
        except DownloadError as error:
            raise OSError(f"{error} The release's homepage is {release.homepage}.") from error
    names = [file.name for file in release.files]
    return target / names[0] if len(names) == 1 and names[0].endswith((".zip", ".tar.gz")) else target


def download(file: RemoteFile, path: Path, progress: bool = True) -> None:
    """Download a file to `path`, which appears once complete; an interrupted download is resumed from `path`.part."""
    for url in file.urls:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"A URL must start with http:// or https://, got {url}.")
    if is_complete(file, path):
        return
    part, version = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.version")
    with sentence_errors(part, path), open_locked(part) as output:
        try:
            fetch_with_retries(file, output, version, progress)
        except BaseException:
            if output.seek(0, os.SEEK_END) == 0:
                remove(version)
                remove(part)
            raise
        remove(version)
        digest_file(path).write_text(sha256_of(part))
        if os.name == "nt":
            output.close()  # Windows cannot rename an open file
        os.replace(part, path)


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows cannot remove an open file
        path.unlink()


def digest_file(path: Path) -> Path:
    """Return the path of the file with the SHA-256 of a downloaded file."""
    return path.with_name(f".{path.name}.sha256")


def is_complete(file: RemoteFile, path: Path) -> bool:
    """Return whether the file is there as it was published, or else as it was downloaded."""
    if not path.is_file() or file.size not in (None, path.stat().st_size) or not has_format(file, path):
        return False
    digest = digest_file(path)
    expected = file.sha256 or (digest.read_text(errors="replace") if digest.is_file() else None)
    return expected is None or expected == sha256_of(path)


def has_format(file: RemoteFile, path: Path) -> bool:
    """Return whether a file begins as its name promises, and in the case of a zip archive also ends so."""
    if Path(file.name).suffix not in FORMATS:
        return True
    with open(path, "rb") as opened:
        begins = re.match(FORMATS[Path(file.name).suffix][1], opened.read(512)) is not None
    return begins and (not file.name.endswith(".zip") or zipfile.is_zipfile(path))


def open_locked(path: Path) -> BinaryIO:
    """Open a file for appending and lock it, until it is closed or the process ends."""
    while True:
        file = open(path, "ab+")  # noqa: SIM115
        try:
            lock(file)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except (BlockingIOError, PermissionError) as error:
            file.close()
            raise OSError(f"{path} is being downloaded by another process; wait for it to finish.") from error
        except FileNotFoundError:
            pass
        file.close()  # another process completed and renamed it before it was locked


def lock(file: BinaryIO) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def fetch_with_retries(file: RemoteFile, output: BinaryIO, version: Path, progress: bool) -> None:
    """Try each URL several times, first that of the bytes already there; raise the error of the longest attempt."""
    errors = []
    started, _ = read_version(version)
    for url in sorted(file.urls, key=lambda url: url != started):
        for delay in (*RETRY_DELAYS, None):
            try:
                fetch(url, file, output, version, progress)
                check(url, file, output)
                return
            except DownloadError as error:
                errors.append(error)
                if delay is None or not error.retry:
                    break
            time.sleep(delay)
    raise max(errors, key=lambda error: error.received)


def fetch(url: str, file: RemoteFile, output: BinaryIO, version: Path, progress: bool) -> None:
    """Append the rest of a remote file to `output`; the file `version` says what the bytes already there are of."""
    started, known = read_version(version)
    known = known if started == url else ""
    start = output.seek(0, os.SEEK_END) if known else 0
    with request(url, start, known) as response:
        status, headers = response.status, response.headers
        span = re.fullmatch(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18})", headers.get("Content-Range", ""))
        length = re.fullmatch(r"\d{1,18}", headers.get("Content-Length", ""))
        total = int(span[2]) if span else int(length[0]) if length else -1
        if start and status == 416 and span and total == start:
            return
        fits = status == 206 and span and span[1] == str(start) and version_of(headers) in ("", known)
        if start and not fits and status in (206, 416):  # it has changed, or is shorter than the part on disk
            output.truncate(0)
            return fetch(url, file, output, version, progress)
        kind = re.sub(r"[^\w/+.-]", "?", headers.get_content_type())[:60]
        if (not fits and status != 200) or kind == "text/html":
            raise DownloadError(
                f"{url} must be {file.name}, but the server sent {kind} with status {status}; "
                "open the URL in a browser to see why."
            )
        encoding = headers.get("Content-Encoding", "identity").strip().lower()
        # Some servers declare the format of the file itself as an encoding.
        if encoding not in ("identity", "") and not (file.name.endswith(".gz") and encoding in ("gzip", "x-gzip")):
            raise DownloadError(f"{url} must be {file.name}, but the server sent it compressed; try again later.")
        start = start if fits else 0
        limit = total if total >= 0 else file.size or MAX_SIZE
        if total >= 0:
            check_size(file, total, url)
            if total > MAX_SIZE:
                raise DownloadError(f"{url} must be at most {MAX_SIZE:,} bytes; the server announces {total:,}.")
            check_space(f"Downloading {file.name}", total - output.tell(), Path(output.name).parent)
        if not start:
            output.truncate(0)
            version.write_text(f"{url}\n{version_of(headers)}")
        received, disconnected = read_all(response, output, start, total, limit, progress)
    if received > limit:
        output.truncate(0)
        raise DownloadError(f"{url} must be at most {limit:,} bytes; the server sent more.")
    if disconnected or received < total:
        raise DownloadError(
            f"The connection was lost after {received:,}{f' of {total:,}' if total >= 0 else ''} bytes of {url}; "
            f"run the same command to {'resume' if read_version(version)[1] else 'start again'}.",
            retry=True,
            received=received,
        )


def read_version(path: Path) -> tuple[str, str]:
    """Return the URL and the version of the bytes in a .part file, "" if they are not known."""
    lines = path.read_text(errors="replace").split("\n") if path.is_file() else []
    return (lines[0], lines[1]) if len(lines) == 2 and lines[1].isascii() and lines[1].isprintable() else ("", "")


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, at most ten, but never from https to http."""

    def redirect_request(self, request, response, code, message, headers, url):
        if urlsplit(request.full_url).scheme == "https" and urlsplit(url).scheme != "https":
            raise DownloadError(
                f"{request.full_url} must be downloaded over https, but the server redirects to http; "
                "download it in a browser if you trust it."
            )
        return super().redirect_request(request, response, code, message, headers, url)


def request(url: str, start: int, version: str):
    """Request a file from byte `start` on, or all of it if its version has changed."""
    headers = {"User-Agent": "transformers-elmo", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": version}
    try:
        # A new opener reads the proxies of the environment.
        opener = urllib.request.build_opener(Redirects)
        return opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except DownloadError:
        raise
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:
            return error
        error.close()
        status = f"{error.code} {http.client.responses.get(error.code, '')}".rstrip()
        raise DownloadError(
            f"{url} cannot be downloaded: the server answered {status}; "
            + ("try again later." if error.code >= 500 else "it may have moved."),
            retry=error.code >= 500 or error.code in (408, 429),
        ) from error
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a redirect to no valid URL
        reason = getattr(error, "reason", error)
        text = one_line(getattr(reason, "strerror", None) or reason)
        text = "".join(char if char.isprintable() else "?" for char in text)  # it may quote what the server sent
        raise DownloadError(
            f"{url} cannot be reached ({text}); check the network and try again.",
            retry=isinstance(reason, (TimeoutError, ConnectionError)),
        ) from error


def read_all(response, output: BinaryIO, start: int, total: int, limit: int, progress: bool) -> tuple[int, bool]:
    """Append the response to `output`, up to `limit`; return the new size, and whether the connection was lost."""
    with tqdm(
        desc=Path(output.name).stem,
        initial=start,
        total=total if total >= 0 else None,
        unit="B",
        unit_scale=True,
        disable=not (progress and sys.stderr.isatty()),
    ) as bar:
        while True:
            try:
                block = response.read(BLOCK)
            except (OSError, http.client.HTTPException):
                return output.tell(), True
            if not block:
                return output.tell(), False
            output.write(block)
            bar.update(len(block))
            if output.tell() > limit:
                return output.tell(), False


def version_of(headers: Message) -> str:
    """Return the version of a remote file as a value for If-Range, "" if the server does not send one."""
    tag = headers.get("ETag", "")
    version = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")
    return version if version.isascii() and version.isprintable() else ""


def check(url: str, file: RemoteFile, output: BinaryIO) -> None:
    """Raise and discard the download if its size, format or hash is wrong."""
    output.flush()
    path = Path(output.name)
    try:
        check_size(file, output.tell(), url)
        if not has_format(file, path):
            format, _ = FORMATS[Path(file.name).suffix]
            with open(path, "rb") as opened:
                begin = opened.read(20)
            raise DownloadError(
                f"{url} must be {format}; what the server sent begins with {begin!r} or is truncated, and was removed: "
                "open the URL in a browser to see why."
            )
        if file.sha256 is not None and file.sha256 != (got := sha256_of(path)):
            raise DownloadError(
                f"{file.name} must have the SHA-256 {file.sha256}, that of {url} is {got}; it was removed: try again, "
                "and if that does not help, the published file has changed."
            )
    except DownloadError:
        output.truncate(0)
        raise


def check_size(file: RemoteFile, size: int, where: str) -> None:
    if file.size not in (None, size):
        raise DownloadError(f"{where} must be {file.size:,} bytes, got {size:,}; the published file has changed.")
