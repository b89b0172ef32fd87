# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Download released ELMos, resuming where an interrupted download stopped."""

import contextlib
import http.client
import os
import re
import sys
import time
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from tqdm import tqdm

from ..files import check_space, sha256_of
from .releases import Release, RemoteFile

TIMEOUT = 30  # seconds without a byte
RETRY_DELAYS = (1, 3, 9)  # seconds
BLOCK = 1 << 16  # bytes; at most one block is lost with the connection


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
    return target / names[0] if len(names) == 1 and names[0].endswith(".zip") else target


def download(file: RemoteFile, path: Path, progress: bool = True) -> None:
    """Download a file to `path`, which appears once complete; an interrupted download is resumed from `path`.part."""
    for url in file.urls:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"A URL must start with http:// or https://, got {url}.")
    if is_complete(file, path):
        return
    part, version = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.version")
    with open_locked(part) as output:
        try:
            fetch_with_retries(file, output, version, progress)
        except BaseException:
            if output.seek(0, os.SEEK_END) == 0:
                remove(version)
                remove(part)
            raise
        remove(version)
        if os.name == "nt":
            output.close()  # Windows cannot rename an open file
        os.replace(part, path)


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows cannot remove an open file
        path.unlink()


def is_complete(file: RemoteFile, path: Path) -> bool:
    if not path.is_file() or file.size not in (None, path.stat().st_size):
        return False
    return file.sha256 is None or file.sha256 == sha256_of(path)


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
    """Try each URL several times; raise the error of the attempt that received most."""
    errors = []
    for url in file.urls:
        for delay in (*RETRY_DELAYS, None):
            try:
                fetch(url, file, output, version, progress)
                check(file, output)
                return
            except DownloadError as error:
                errors.append(error)
                if delay is None or not error.retry:
                    break
            time.sleep(delay)
    raise max(errors, key=lambda error: error.received)


def fetch(url: str, file: RemoteFile, output: BinaryIO, version: Path, progress: bool) -> None:
    """Append the rest of a remote file to `output`; `version` is a file with the version of the bytes already there."""
    known = version.read_text() if version.exists() else ""
    start = output.seek(0, os.SEEK_END) if known else 0
    with request(url, start, known) as response:
        status, headers = response.status, response.headers
        span = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", headers.get("Content-Range", ""))
        total = int(span[2] if span else headers.get("Content-Length", -1))
        if start and status == 416 and span and total == start:
            return
        fits = status == 206 and span and span[1] == str(start) and version_of(headers) in ("", known)
        if start and not fits and status in (206, 416):  # it has changed, or is shorter than the part on disk
            output.truncate(0)
            return fetch(url, file, output, version, progress)
        if (not fits and status != 200) or headers.get_content_type() == "text/html":
            raise DownloadError(
                f"{url} must be {file.name}, but the server sent {headers.get_content_type()} with status {status}; "
                "open the URL in a browser to see why."
            )
        start = start if fits else 0
        if total >= 0:
            check_size(file, total, url)
            check_space(f"Downloading {file.name}", total - output.tell(), Path(output.name).parent)
        if not start:
            output.truncate(0)
            version.write_text(version_of(headers))
        received, disconnected = read_all(response, output, start, total, progress)
    if disconnected or received < total:
        raise DownloadError(
            f"The connection was lost after {received:,}{f' of {total:,}' if total >= 0 else ''} bytes of {url}; "
            f"run the same command to {'resume' if version.read_text() else 'start again'}.",
            retry=True,
            received=received,
        )


def request(url: str, start: int, version: str):
    """Request a file from byte `start` on, or all of it if its version has changed."""
    headers = {"User-Agent": "transformers-elmo", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": version}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:
            return error
        error.close()
        raise DownloadError(
            f"{url} cannot be downloaded: the server answered {error.code} {error.reason}; "
            + ("try again later." if error.code >= 500 else "it may have moved."),
            retry=error.code >= 500 or error.code in (408, 429),
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        text = getattr(reason, "strerror", None) or reason
        raise DownloadError(
            f"{url} cannot be reached ({text}); check the network and try again.",
            retry=isinstance(reason, (TimeoutError, ConnectionError)),
        ) from error


def read_all(response, output: BinaryIO, start: int, total: int, progress: bool) -> tuple[int, bool]:
    """Append the response to `output`; return the new size, and whether the connection was lost."""
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


def version_of(headers: Message) -> str:
    """Return the version of a remote file as a value for If-Range, "" if the server does not send one."""
    tag = headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")


def check(file: RemoteFile, output: BinaryIO) -> None:
    """Raise and discard the download if its size or hash is wrong."""
    output.flush()
    try:
        check_size(file, output.tell(), file.name)
        if file.sha256 is not None and file.sha256 != (got := sha256_of(Path(output.name))):
            raise DownloadError(
                f"{file.name} must have the SHA-256 {file.sha256}, got {got}; it was removed: try again, and if that "
                "does not help, the published file has changed."
            )
    except DownloadError:
        output.truncate(0)
        raise


def check_size(file: RemoteFile, size: int, where: str) -> None:
    if file.size not in (None, size):
        raise DownloadError(f"{where} must be {file.size:,} bytes, got {size:,}; the published file has changed.")
