"""`fastweights data` finds, downloads and verifies files of data sets, or names the URL and path of a missing one."""

import hashlib
import io
import multiprocessing
import re
import zipfile
from pathlib import Path

import pytest

from fastweights import cli
from fastweights.registry import DATA_SETS
from fastweights.tasks import MissingFile
from fastweights.tasks.sources.data_archive import DataArchive
from fastweights.tasks.sources.data_files import DataFile, data_cache

NAMES = DATA_SETS.names()
FILES = [file for name in NAMES for file in DATA_SETS.load(name).files]
MEMBERS = {"set/a.txt": b"one", "set/b.txt": b"two", "LICENSE": b"of the archive"}


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    """A machine without data."""
    monkeypatch.delenv("FASTWEIGHTS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return data_cache()


@pytest.fixture
def offline(monkeypatch):
    def refuse(url, timeout):
        raise OSError("the tests use no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


def zip_of(members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()


def archive_at(*urls, members=MEMBERS):
    digest = hashlib.sha256()
    for name in sorted(name for name in members if name.endswith(".txt")):
        digest.update(f"{name}\0{len(members[name])}\0".encode() + members[name])
    return DataArchive("set/set.zip", 10_000, r"set/\w\.txt$", digest.hexdigest(), urls)


@pytest.mark.parametrize("name", NAMES)
def test_error_for_missing_data_has_url_path_and_command(name, empty_cache, offline, capsys):
    """For the first file: an error of one line, and no files."""
    assert cli.main(["data", name]) == 2
    error = capsys.readouterr().err
    (line,) = error.splitlines()
    (file, *_) = DATA_SETS.load(name).files
    assert re.search(r"https?://\S+", line)
    assert re.search(rf"Save it as {empty_cache}/{name}/\S+\. See fastweights data {name}\.$", line)
    assert file.path.startswith(f"{name}/")
    assert not list(empty_cache.rglob("*"))


@pytest.mark.parametrize("name", NAMES)
def test_data_sets_state_licence_and_size(name):
    data_set = DATA_SETS.load(name)
    assert data_set.licence
    assert re.fullmatch(r"[\d.]+ [MG]B", data_set.size)
    assert data_set.page.startswith("https://")
    assert all(file.path.startswith(f"{name}/") for file in data_set.files)


def test_all_data_sets_are_listed(capsys):
    assert cli.main(["data"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == NAMES


def test_error_suggests_the_nearest_data_set(capsys):
    assert cli.main(["data", "omniglott"]) == 2
    assert "Did you mean 'omniglot'?" in capsys.readouterr().err


@pytest.mark.parametrize("file", [file for file in FILES if isinstance(file, DataArchive)], ids=lambda file: file.path)
def test_published_archives_have_the_recorded_digests(file, real_data):
    try:
        path = file.fetch()
    except MissingFile:
        pytest.skip(f"{file.path} is missing")
    assert file.digest(path.read_bytes()) == file.sha256


@pytest.mark.parametrize("order", [1, -1])
def test_archive_is_verified_by_its_members(order, server, empty_cache):
    """For every order of the members, and with other files in the archive."""
    content = zip_of(dict(list(MEMBERS.items())[::order]))
    server.answers["/set.zip"] = (200, content, len(content))
    path = archive_at(f"{server.url}set.zip").fetch()
    assert path == empty_cache / "set/set.zip"
    assert path.read_bytes() == content
    archive_at(f"{server.url}set.zip").fetch()
    assert server.asked == ["/set.zip"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (zip_of({**MEMBERS, "set/a.txt": b"0ne"}), "members with SHA-256"),
        (zip_of({**MEMBERS, "set/c.txt": b"more"}), "members with SHA-256"),
        (zip_of({"set/a.txt": b"one"}), "members with SHA-256"),
        (zip_of(MEMBERS)[:-30], "whole zip archive"),
        (b"<html>", "whole tar archive|members with"),
        (bytes(20_000), "members with|archive"),
    ],
    ids=["changed", "more", "fewer", "cut off", "page", "zeros"],
)
def test_wrong_archive_is_rejected_and_deleted(content, reason, server, empty_cache):
    server.answers["/set.zip"] = (200, content, len(content))
    with pytest.raises(MissingFile, match=reason):
        archive_at(f"{server.url}set.zip").fetch()
    assert not [path for path in empty_cache.rglob("*") if path.is_file()]


def fetch(url, size, sha256):
    return DataFile("set/file", size, sha256, (url,)).read()


def test_processes_may_download_concurrently(server, empty_cache):
    content = bytes(range(256)) * 4000
    server.answers["/file"] = (200, content, len(content))
    file_arguments = (f"{server.url}file", len(content), hashlib.sha256(content).hexdigest())
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert pool.starmap(fetch, [file_arguments] * 8) == [content] * 8
    assert [path.name for path in empty_cache.rglob("*") if path.is_file()] == ["file"]


def test_interrupted_download_leaves_no_file(server, empty_cache, monkeypatch):
    """The file gets its name when it is complete."""

    def interrupt(source, target):
        assert not Path(target).exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    server.answers["/file"] = (200, b"content", 7)
    with pytest.raises(KeyboardInterrupt):
        DataFile("set/file", 7, hashlib.sha256(b"content").hexdigest(), (f"{server.url}file",)).fetch()
    assert not [path for path in empty_cache.rglob("*") if path.is_file()]
