# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The released ELMos: where each can be had, and a download that goes on where the last one stopped.

Addresses are those of the models' own pages; a second address of a file is a fall-back that was published too. Sizes,
SHA-256 sums and licences are there only where somebody stated them.
"""

import contextlib
import difflib
import http.client
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from tqdm import tqdm

from .reading import sha256_of

TIMEOUT = 30  # seconds without a byte
RETRY_DELAYS = (1, 3, 9)  # seconds
BLOCK = 1 << 16  # what is lost at most when the connection is


@dataclass(frozen=True)
class RemoteFile:
    urls: tuple[str, ...]  # tried in this order
    name: str  # as it is saved
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Release:
    name: str
    description: str
    language: str | None  # ISO 639-1, or 639-3 where that has none
    license: str | None  # as the Hub writes it
    homepage: str
    files: tuple[RemoteFile, ...]


ALLENNLP = "https://allenai.org/allennlp/software/elmo"
S3 = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"  # the same bucket under its two names
BUCKET = "https://allennlp.s3.amazonaws.com/models/elmo/"
SMALL, MEDIUM, LARGE, LARGER = (
    f"{sizes}/elmo_{sizes}"
    for sizes in (
        "2x1024_128_2048cnn_1xhighway",
        "2x2048_256_2048cnn_1xhighway",
        "2x4096_512_2048cnn_2xhighway",
        "2x4096_512_2048cnn_2xhighway_5.5B",
    )
)
PORTUGUESE = f"{S3}contributed/pt/"
PUBMED = f"{S3}contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_"
JAPANESE = "https://exawizardsallenlp.blob.core.windows.net/data/"
GERMAN = "https://github.com/t-systems-on-site-services-gmbh/german-elmo-model"
BASQUE = "https://schweter.eu/cloud/eu-elmo/"
NLPL = "http://vectors.nlpl.eu/repository/"
NORELMO = "http://wiki.nlpl.eu/Vectors/norlm/norelmo"
SEMEVAL = "https://github.com/akutuzov/semeval2020"
RUSVECTORES = "https://rusvectores.org/en/models/"

CHECKS = {  # the size and the SHA-256 of the file at an address
    f"{S3}{SMALL}_weights.hdf5": (54_402_456, "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229"),
    f"{BUCKET}{LARGE}_weights.hdf5": (374_434_792, None),
}


def files(**addresses: str) -> tuple[RemoteFile, ...]:
    """Files by the beginning of their names, each at an address, or at several with spaces between them."""
    names = {"options": "options.json", "weights": "weights.hdf5", "softmax": "softmax.hdf5", "vocab": "vocab.txt"}
    return tuple(
        RemoteFile(tuple(urls.split()), names[name], *CHECKS.get(urls.split()[0], ()))
        for name, urls in addresses.items()
    )


def archive(number: int, *versions: int) -> tuple[RemoteFile, ...]:
    """A model of the NLPL repository, which numbers its models and its own versions."""
    return (RemoteFile(tuple(f"{NLPL}{version}/{number}.zip" for version in versions), f"{number}.zip"),)


ORIGINAL = files(
    options=f"{BUCKET}{LARGE}_options.json {S3}{LARGE}_options.json",
    weights=f"{BUCKET}{LARGE}_weights.hdf5 {S3}{LARGE}_weights.hdf5",
)
ORIGINAL_5_5B = files(
    options=f"{S3}{LARGER}_options.json {BUCKET}{LARGER}_options.json",
    weights=f"{S3}{LARGER}_weights.hdf5 {BUCKET}{LARGER}_weights.hdf5",
)
# A vocabulary only says which words the rows of a softmax are, so that models without one do without the other.
SOFTMAX = files(
    softmax=f"{S3}{LARGE}_softmax_weights.hdf5",
    vocab=f"{S3}vocab-2016-09-10.txt {BUCKET}vocab-2016-09-10.txt",
)
SOFTMAX_5_5B = files(
    softmax=f"{S3}{LARGER}_softmax_weights.hdf5",
    vocab=f"{S3}2x4096_512_2048cnn_2xhighway_5.5B/tf_checkpoint/vocab-enwiki-news-500000.txt",
)
OF_ALLENNLP = [
    Release("small", "1 Billion Word Benchmark, 13.6 million parameters", "en", None, ALLENNLP,
            files(options=f"{S3}{SMALL}_options.json", weights=f"{S3}{SMALL}_weights.hdf5")),
    Release("medium", "1 Billion Word Benchmark, 28.0 million parameters", "en", None, ALLENNLP,
            files(options=f"{S3}{MEDIUM}_options.json", weights=f"{S3}{MEDIUM}_weights.hdf5")),
    Release("original", "1 Billion Word Benchmark, 93.6 million parameters", "en", None, ALLENNLP, ORIGINAL),
    Release("original-lm", "original with its softmax", "en", None, ALLENNLP, ORIGINAL + SOFTMAX),
    Release("original-5.5b", "5.5 billion words of Wikipedia and news, 93.6 million parameters", "en", None, ALLENNLP,
            ORIGINAL_5_5B),
    Release("original-5.5b-lm", "original-5.5b with its softmax", "en", None, ALLENNLP, ORIGINAL_5_5B + SOFTMAX_5_5B),
    Release("pubmed", "PubMed", "en", None, ALLENNLP,
            files(options=f"{PUBMED}options.json",
                  weights=f"{PUBMED}weights_PubMed_only.hdf5")),
    Release("portuguese", "Wikipedia", "pt", None, ALLENNLP,
            files(options=f"{PORTUGUESE}wikipedia/options.json",
                  weights=f"{PORTUGUESE}wikipedia/elmo_pt_weights.hdf5")),
    Release("portuguese-brwac", "brWaC", "pt", None, ALLENNLP,
            files(options=f"{PORTUGUESE}brwac/options.json",
                  weights=f"{PORTUGUESE}brwac/elmo_pt_weights_dgx1.hdf5")),
    Release("japanese", "made by ExaWizards", "ja", None, ALLENNLP,
            files(options=f"{JAPANESE}options.json",
                  weights=f"{JAPANESE}weights.hdf5")),
    Release("german", "Wikipedia with its comments, by T-Systems on site", "de", "bsd-2-clause", GERMAN,
            files(options=f"{GERMAN}/releases/download/files_1/options.json",
                  weights=f"{GERMAN}/releases/download/files_1/weights.hdf5")),
    Release("basque", "Wikipedia, OPUS and Leipzig corpora, by Stefan Schweter", "eu", None,
            "https://github.com/stefan-it/plur",
            files(options=f"{BASQUE}options.json",
                  weights=f"{BASQUE}weights.hdf5")),
]  # fmt: skip

OF_NLPL = [
    Release("nlpl-english", "made for SemEval-2020 task 1", "en", None, SEMEVAL, archive(209, 20)),
    Release("nlpl-german", "made for SemEval-2020 task 1", "de", None, SEMEVAL, archive(201, 20)),
    Release("nlpl-latin", "made for SemEval-2020 task 1", "la", None, SEMEVAL, archive(203, 20)),
    Release("nlpl-swedish", "made for SemEval-2020 task 1", "sv", None, SEMEVAL, archive(202, 20)),
    Release("nlpl-norwegian", "Wikipedia", "no", "cc-by-4.0", NORELMO, archive(211, 20)),
    Release("nlpl-norwegian-lemmas", "lemmas of Wikipedia", "no", "cc-by-4.0", NORELMO, archive(210, 20)),
    Release("nlpl-norelmo30", "Wikipedia and news, 30,000 words", "no", "cc-by-4.0", NORELMO, archive(217, 20)),
    Release("nlpl-norelmo100", "Wikipedia and news, 100,000 words", "no", "cc-by-4.0", NORELMO, archive(218, 20)),
    Release("nlpl-russian", "National Corpus and Wikipedia", "ru", None, RUSVECTORES, archive(195, 20, 11)),
    Release(
        "nlpl-russian-lemmas", "lemmas of National Corpus and Wikipedia", "ru", None, RUSVECTORES, archive(196, 20, 11)
    ),
    Release("nlpl-russian-taiga-lemmas", "lemmas of Taiga", "ru", None, RUSVECTORES, archive(199, 20)),
    Release("nlpl-russian-araneum-lemmas", "lemmas of Araneum", "ru", None, RUSVECTORES, archive(212, 20)),
]

MANY_LANGUAGES = {
    "arabic": (136, "ar"), "bulgarian": (137, "bg"), "catalan": (138, "ca"), "czech": (139, "cs"),
    "old-church-slavonic": (140, "cu"), "danish": (141, "da"), "german": (142, "de"), "greek": (143, "el"),
    "english": (144, "en"), "spanish": (145, "es"), "estonian": (146, "et"), "basque": (147, "eu"),
    "persian": (148, "fa"), "finnish": (149, "fi"), "french": (150, "fr"), "irish": (151, "ga"),
    "galician": (152, "gl"), "ancient-greek": (153, "grc"), "hebrew": (154, "he"), "hindi": (155, "hi"),
    "croatian": (156, "hr"), "hungarian": (157, "hu"), "indonesian": (158, "id"), "italian": (159, "it"),
    "japanese": (160, "ja"), "korean": (161, "ko"), "latin": (162, "la"), "latvian": (163, "lv"),
    "dutch": (164, "nl"), "norwegian-bokmal": (165, "nb"), "norwegian-nynorsk": (166, "nn"), "polish": (167, "pl"),
    "portuguese": (168, "pt"), "romanian": (169, "ro"), "russian": (170, "ru"), "slovak": (171, "sk"),
    "slovene": (172, "sl"), "swedish": (173, "sv"), "turkish": (174, "tr"), "uyghur": (175, "ug"),
    "ukrainian": (176, "uk"), "urdu": (177, "ur"), "vietnamese": (178, "vi"), "chinese": (179, "zh"),
}  # fmt: skip
OF_MANY_LANGUAGES = [
    Release(f"many-langs-{name}", "20 million words of Wikipedia and Common Crawl, ELMoForManyLangs", language, "mit",
            "https://github.com/HIT-SCIR/ELMoForManyLangs", archive(number, 11))
    for name, (number, language) in MANY_LANGUAGES.items()
]  # fmt: skip

RELEASES = {release.name: release for release in OF_ALLENNLP + OF_NLPL + OF_MANY_LANGUAGES}


def find_release(name: str) -> Release:
    if name in RELEASES:
        return RELEASES[name]
    wanted = name.lower()
    near = [known for known in RELEASES if wanted and wanted in known] or difflib.get_close_matches(wanted, RELEASES)
    raise ValueError(
        f"{name!r} must be the name of a release, such as {', '.join(near[:4] or ['small', 'original'])}; "
        "`elmo convert --list` shows them all."
    )


class DownloadError(OSError):
    """What one address did wrong; `again` if it may do better in a moment. `received` bytes are kept."""

    def __init__(self, message: str, again: bool = False, received: int = 0):
        super().__init__(message)
        self.again, self.received = again, received


def download_release(release: Release, folder: str | Path, progress: bool = True) -> Path:
    """Download a release into `folder/name`; returns what to convert, that folder or the archive in it."""
    target = Path(folder) / release.name
    target.mkdir(parents=True, exist_ok=True)
    for file in release.files:
        try:
            download(file, target / file.name, progress)
        except DownloadError as error:
            raise OSError(f"{error} The page of the release is {release.homepage}.") from error
    names = [file.name for file in release.files]
    return target / names[0] if len(names) == 1 and names[0].endswith(".zip") else target


def download(file: RemoteFile, path: Path, progress: bool = True) -> None:
    """Download to `path`, which appears when it is whole; until then `path.part` grows, from one call to the next."""
    for url in file.urls:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"An address must begin with http:// or https://, got {url}.")
    if is_whole(file, path):
        return
    part, version = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.version")
    with open_alone(part) as output:
        try:
            fetch_from_any(file, output, version, progress)
        except BaseException:
            if output.seek(0, os.SEEK_END) == 0:
                remove(version)
                remove(part)
            raise
        remove(version)
        if os.name == "nt":
            output.close()  # Windows renames no open file
        os.replace(part, path)


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows removes no open file
        path.unlink()


def is_whole(file: RemoteFile, path: Path) -> bool:
    if not path.is_file() or file.size not in (None, path.stat().st_size):
        return False
    return file.sha256 is None or file.sha256 == sha256_of(path)


def open_alone(path: Path) -> BinaryIO:
    """Open for appending under a lock, which ends with the process however that ends."""
    while True:
        file = open(path, "ab+")  # noqa: SIM115
        try:
            lock(file)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except (BlockingIOError, PermissionError) as error:
            file.close()
            raise OSError(f"{path} is being downloaded by another process; wait until that has finished.") from error
        except FileNotFoundError:
            pass
        file.close()  # between our opening and locking it, another process finished it


def lock(file: BinaryIO) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def fetch_from_any(file: RemoteFile, output: BinaryIO, version: Path, progress: bool) -> None:
    errors = []
    for url in file.urls:
        for delay in (*RETRY_DELAYS, None):
            try:
                fetch(url, file, output, version, progress)
                return check(file, output)
            except DownloadError as error:
                errors.append(error)
                if delay is None or not error.again:
                    break
            time.sleep(delay)
    raise max(errors, key=lambda error: error.received)


def fetch(url: str, file: RemoteFile, output: BinaryIO, version: Path, progress: bool) -> None:
    """Append what `output` lacks. `version` remembers which state of the remote file its beginning is of."""
    known = version.read_text() if version.exists() else ""
    start = output.seek(0, os.SEEK_END) if known else 0
    with ask(url, start, known) as response:
        status, headers = response.status, response.headers
        span = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", headers.get("Content-Range", ""))
        total = int(span[2] if span else headers.get("Content-Length", -1))
        if start and status == 416 and span and total == start:
            return
        fits = status == 206 and span and span[1] == str(start) and known_as(headers) in ("", known)
        if start and not fits and status in (206, 416):  # the file has changed, or is shorter than what we have of it
            output.truncate(0)
            return fetch(url, file, output, version, progress)
        if (not fits and status != 200) or headers.get_content_type() == "text/html":
            raise DownloadError(
                f"{url} must be {file.name}, the server sent {headers.get_content_type()} with status {status}; "
                "open the address in a browser to see what is there."
            )
        start = start if fits else 0
        if total >= 0:
            check_size(file, total, url)
            check_space(output, total)
        if not start:
            output.truncate(0)
            version.write_text(known_as(headers))
        received, lost = read_all(response, output, start, total, progress)
    if lost or received < total:
        raise DownloadError(
            f"The connection was lost after {received:,} of {f'{total:,}' if total >= 0 else 'all'} bytes of {url}; "
            f"the same command {'goes on from there' if version.read_text() else 'starts again'}.",
            again=True,
            received=received,
        )


def ask(url: str, start: int, version: str):
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
            f"{url} must be a file, the server answered {error.code} {error.reason}; "
            + ("try again later." if error.code >= 500 else "it may have moved."),
            again=error.code >= 500 or error.code in (408, 429),
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        text = getattr(reason, "strerror", None) or reason
        raise DownloadError(
            f"{url} cannot be reached ({text}); check the network and try again.",
            again=isinstance(reason, (TimeoutError, ConnectionError)),
        ) from error


def read_all(response, output: BinaryIO, start: int, total: int, progress: bool) -> tuple[int, bool]:
    """How many bytes there are now, and whether the connection broke."""
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


def known_as(headers) -> str:
    """The state of a remote file, in the form that If-Range takes; "" if the server does not tell."""
    tag = headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")


def check(file: RemoteFile, output: BinaryIO) -> None:
    """Empty what has come if it is not what was wanted."""
    output.flush()
    try:
        check_size(file, output.tell(), file.name)
        if file.sha256 is not None and file.sha256 != (got := sha256_of(Path(output.name))):
            raise DownloadError(
                f"{file.name} must have the SHA-256 {file.sha256}, got {got}; it was removed: try again, and if that "
                "does not help, the file has been changed where it is published."
            )
    except DownloadError:
        output.truncate(0)
        raise


def check_size(file: RemoteFile, size: int, where: str) -> None:
    if file.size not in (None, size):
        raise DownloadError(
            f"{where} must be {file.size:,} bytes, got {size:,}; the file has been changed where it is published."
        )


def check_space(output: BinaryIO, size: int) -> None:
    folder, needed = Path(output.name).parent, size - output.tell()
    if needed > (free := shutil.disk_usage(folder).free):
        raise OSError(f"{folder} must have {needed:,} bytes free, has {free:,}; make room or name another folder.")
