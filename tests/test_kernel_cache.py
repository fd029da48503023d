"""Other users cannot put code into the cache of kernels, and it removes no file of the user."""

import logging
import os
import stat
import time
from types import SimpleNamespace

import pytest

from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.targets import cache
from fastweights.compiler.targets.cpp import build, scratch

SOURCE = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }'
OTHER_USER = 12345
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A library with a valid seal, which other users can make as well."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTWEIGHTS_CACHE", str(folder))
        build.build(SOURCE, "kernel")
    return (folder / "kernel.so").read_bytes()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache of a user."""
    cache._log.cache_clear()
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "above" / "cache"))
    assert cache.kernel_cache_folder() == tmp_path / "above" / "cache"
    return tmp_path / "above" / "cache"


def plant(folder, library):
    (folder / "kernel.so").write_bytes(library)
    (folder / "kernel.so").chmod(0o700)


def assert_ignored(folder, caplog):
    """The folder is neither read nor written, one log message gives the reason, and kernels run without it."""
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*")}
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fastweights"):
        for _ in range(2):
            assert build.load("kernel") is None
            assert build.build(SOURCE, "kernel").answer() == 42
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*")} == before
    (record,) = caplog.records
    assert f"not kept in {os.path.realpath(folder)} (" in record.message
    assert "Set $FASTWEIGHTS_CACHE to a folder that is yours alone." in record.message


def test_sealed_library_of_the_user_is_loaded(folder, library):
    plant(folder, library)
    assert build.load("kernel").answer() == 42


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o720, 0o702])
def test_folder_writable_by_others_is_ignored(folder, library, mode, caplog):
    plant(folder, library)
    folder.chmod(mode)
    assert_ignored(folder, caplog)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o703])
def test_folder_with_a_parent_writable_by_others_is_ignored(folder, library, mode, caplog):
    plant(folder, library)
    folder.parent.chmod(mode)
    assert_ignored(folder, caplog)


def test_sticky_parent_folder_is_safe(folder, library):
    """Like the system's temporary folder: users cannot rename files of others there."""
    plant(folder, library)
    folder.parent.chmod(0o1777)
    assert build.load("kernel").answer() == 42


@as_root
@pytest.mark.parametrize("above", [False, True])
def test_folder_of_another_user_is_ignored(folder, library, above, caplog):
    plant(folder, library)
    os.chown(folder.parent if above else folder, OTHER_USER, OTHER_USER)
    assert_ignored(folder, caplog)


@as_root
def test_file_of_another_user_is_replaced(folder, library):
    """The file may be from a time when the folder was writable by others."""
    plant(folder, library)
    os.chown(folder / "kernel.so", OTHER_USER, OTHER_USER)
    assert build.load("kernel") is None
    assert build.build(SOURCE, "kernel").answer() == 42
    assert (folder / "kernel.so").stat().st_uid == os.geteuid()
    assert build.load("kernel") is not None


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_file_writable_by_others_is_not_loaded(folder, library, mode):
    plant(folder, library)
    (folder / "kernel.so").chmod(mode)
    assert build.load("kernel") is None


def test_symbolic_link_is_not_loaded(folder, library, tmp_path):
    plant(tmp_path, library)
    (folder / "kernel.so").symlink_to(tmp_path / "kernel.so")
    assert build.load("kernel") is None
    assert build.build(SOURCE, "kernel").answer() == 42
    assert not (folder / "kernel.so").is_symlink()


def test_symbolic_link_to_a_folder_has_the_status_of_its_target(folder, library, tmp_path, monkeypatch, caplog):
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "link"))
    plant(folder, library)
    assert build.load("kernel").answer() == 42
    folder.chmod(0o777)
    assert_ignored(folder, caplog)


def test_nothing_is_built_without_a_safe_folder(folder, tmp_path, monkeypatch):
    folder.chmod(0o777)
    open_to_all = tmp_path / "tmp"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setattr(cache, "_temporary", lambda: SimpleNamespace(name=str(open_to_all / "for-us")))
    (open_to_all / "for-us").mkdir(mode=0o700)
    with pytest.raises(Unbuilt, match="no folder for compiled kernels"):
        build.build(SOURCE, "kernel")


def test_folder_is_trusted_on_systems_without_user_ids(folder, library, monkeypatch):
    monkeypatch.delattr(os, "geteuid")
    plant(folder, library)
    assert build.load("kernel").answer() == 42


def test_new_folders_are_private(tmp_path, monkeypatch):
    before = os.umask(0)
    try:
        monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "a" / "b" / "c"))
        build.build(SOURCE, "kernel")
    finally:
        os.umask(before)
    for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert build.load("kernel").answer() == 42


@pytest.mark.parametrize("name", ["-x", "-o", "a b", "$(id)", "ä\udcff"])
def test_folder_names_may_have_special_characters(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTWEIGHTS_CACHE", name)
    assert build.build(SOURCE, "kernel").answer() == 42
    assert (tmp_path / name / "kernel.so").is_file()


def test_missing_home_folder_is_logged(monkeypatch, caplog):
    cache._log.cache_clear()
    for name in ("FASTWEIGHTS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert build.build(SOURCE, "kernel").answer() == 42
    assert "XDG_CACHE_HOME must be a folder" in caplog.text


@pytest.mark.parametrize("command", ["g++ '", '"', "''", "/", "g++-that-is-not-there -O2", "\\"])
def test_error_names_a_missing_compiler(command, folder, monkeypatch):
    monkeypatch.setenv("CXX", command)
    assert build.stem("kernel", "")
    with pytest.raises(Unbuilt) as error:
        build.build(SOURCE, "kernel")
    assert f"there is no C++ compiler {command!r}, which $CXX names" in str(error.value)


@pytest.mark.parametrize("command", ["", " ", "\t\n"])
def test_blank_cxx_selects_the_default_compiler(command, folder, monkeypatch):
    monkeypatch.setenv("CXX", command)
    assert build.build(SOURCE, "kernel").answer() == 42


def test_error_names_a_compiler_without_output(folder, monkeypatch):
    monkeypatch.setenv("CXX", "true")
    with pytest.raises(Unbuilt, match="true writes nothing"):
        build.build(SOURCE, "kernel")


def test_only_folders_of_killed_builds_are_removed(folder):
    prefix = scratch.PREFIX

    def make_folder(name, mark=None, age=2 * scratch.HOUR):
        (folder / name).mkdir()
        (folder / name / "mine.txt").write_text("years of work")
        if mark is not None:
            (folder / name / scratch.MARK).write_bytes(mark)
        for path in (folder / name).iterdir():
            os.utime(path, (time.time() - age,) * 2)
        os.utime(folder / name, (time.time() - age,) * 2)
        return folder / name

    preserved = [
        make_folder("build-mine"),
        make_folder("build-1", scratch.SEAL),
        make_folder(prefix),
        make_folder(f"{prefix}mine"),
        make_folder(f"{prefix}other-mark", b"another mark"),
        make_folder(f"{prefix}at-work", scratch.SEAL, age=10),
    ]
    leftover = make_folder(f"{prefix}killed", scratch.SEAL)
    (folder / f"{prefix}link").symlink_to(preserved[1])
    preserved.append(folder / f"{prefix}link")
    build.build(SOURCE, "kernel")
    assert not leftover.exists()
    assert all((path / "mine.txt").read_text() == "years of work" for path in preserved)
