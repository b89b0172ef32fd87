"""Malicious, damaged and oversized archives."""

import os
import shutil
import tarfile
from types import SimpleNamespace

import pytest

from helpers.conversion import assert_error
from helpers.damage import OPTIONS, truncate
from helpers.released import write_zip
from helpers.released_cases import identity


def in_zip(change):
    """Put a source into a zip; `change` maps its files by name to those of the zip."""

    def damage(folder):
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        return [write_zip(folder.with_suffix(".zip"), change(files))]

    return damage


def in_tar(add):
    """Put a source into a tar.gz; `add(archive, folder)` adds the members."""

    def damage(folder):
        path = folder.with_name("model.tar.gz")
        with tarfile.open(path, "w:gz") as archive:
            add(archive, folder)
        return [path]

    return damage


def member(name, **fields):
    """Return the header of a tar member."""
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def truncate_archive(damage, share):
    """Keep only the first `share` of the archive that `damage` writes."""

    def damage_and_truncate(folder):
        [path] = damage(folder)
        truncate(path, share)(folder)
        return [path]

    return damage_and_truncate


def add_all(archive, folder):
    archive.add(folder, "")


BAD_ARCHIVES = {
    "zip-parent-folder": (in_zip(lambda files: {**files, "../evil": b""}), ["source.zip", "../evil"]),
    "zip-parent-folder-with-backslash": (in_zip(lambda files: {**files, "..\\evil": b""}), ["source.zip", "evil"]),
    "zip-absolute": (in_zip(lambda files: {**files, "/tmp/evil": b""}), ["source.zip", "/tmp/evil"]),
    "zip-drive": (in_zip(lambda files: {**files, "C:/evil": b""}), ["source.zip", "C:/evil"]),
    "zip-empty": (in_zip(lambda files: {}), ["source.zip", "empty"]),
    "zip-without-elmo": (
        in_zip(lambda files: {"photo.jpg": b"", "b/c": b"", "d/e": b""}),
        ["source.zip", "photo.jpg"],
    ),
    "zip-without-options": (
        in_zip(lambda files: {name: files[name] for name in files if name != OPTIONS}),
        ["source.zip/weights.hdf5", OPTIONS],
    ),
    "zip-file-and-folder": (in_zip(lambda files: {"a": b"", "a/b": b""}), ["source.zip", "a"]),
    "zip-truncated": (truncate_archive(in_zip(identity), 0.7), ["source.zip", "truncated"]),
    "zip-with-two-folders": (in_zip(lambda files: {"a/x": b"", "b/x": b""}), ["source.zip", "a, b"]),
    "tar-parent-folder": (
        in_tar(lambda archive, folder: archive.addfile(member("../evil"))),
        ["model.tar.gz", "../evil"],
    ),
    "tar-absolute": (
        in_tar(lambda archive, folder: archive.addfile(member("/tmp/evil"))),
        ["model.tar.gz", "/tmp/evil"],
    ),
    "tar-symlink": (
        in_tar(
            lambda archive, folder: archive.addfile(member("weights.th", type=tarfile.SYMTYPE, linkname="/etc/passwd"))
        ),
        ["model.tar.gz"],
    ),
    "tar-hard-link": (
        in_tar(lambda archive, folder: archive.addfile(member("weights.th", type=tarfile.LNKTYPE, linkname="../x"))),
        ["model.tar.gz"],
    ),
    "tar-device": (
        in_tar(lambda archive, folder: archive.addfile(member("weights.th", type=tarfile.CHRTYPE))),
        ["model.tar.gz"],
    ),
    "tar-empty": (in_tar(lambda archive, folder: None), ["model.tar.gz", "empty"]),
    "tar-truncated": (truncate_archive(in_tar(add_all), 0.7), ["model.tar.gz", "truncated"]),
    "tar-truncated-in-the-header": (truncate_archive(in_tar(add_all), 0.01), ["model.tar.gz"]),
}


@pytest.mark.parametrize("damage, parts", BAD_ARCHIVES.values(), ids=BAD_ARCHIVES)
def test_bad_archives(convert_damaged, tmp_path, damage, parts):
    assert_error(convert_damaged("bilm", damage), *parts)
    assert not list(tmp_path.rglob("evil")) and not os.path.exists("/tmp/evil")


def test_archive_that_does_not_fit(convert_damaged, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    assert_error(convert_damaged("bilm", in_zip(identity)), "source.zip", "1,000 are free")
