"""Files of other users in the cache: what another user wrote, or could have written, is never run,
and the kernel is compiled and runs all the same."""

import os
import stat
import warnings

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime import tuning_records
from tilewright.runtime.storage import files, private_folder
from tilewright.runtime.storage.disk_cache import disk_cache
from tilewright.runtime.storage.tuning_record import Record

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX systems")

OTHER = 12345


@tw.jit
def put(y, a):
    tl.store(y, a)


@pytest.fixture(autouse=True)
def unshared(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_CACHE_SHARED", raising=False)


def launch():
    """Launch as a new process would; whether the kernel was kept, and what was warned of."""
    put.clear_cache()
    disk_cache()._warned.clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        kernel = put[(1,)](np.zeros(1), 2)
    return kernel.cache_hit, "\n".join(str(warning.message) for warning in seen)


def entry_of_put():
    return disk_cache().path(put[(1,)](np.zeros(1), 2).hash)


def give_away(path):
    try:
        os.chown(path, OTHER, -1, follow_symlinks=False)
    except PermissionError:
        pytest.skip("only the administrator gives files away")


def open_to_others(path):
    path.chmod(path.stat().st_mode | stat.S_IWGRP)


def linked(path):
    elsewhere = path.with_suffix(".elsewhere")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    give_away(elsewhere)


def test_folders_and_entries_are_for_their_owner_alone_whatever_the_umask(recorder):
    before = os.umask(0)
    try:
        launch()
        tuning_records.keep(Record("k", "s", "k", "d", "t", "c", "b"))
    finally:
        os.umask(before)
    made = list(disk_cache().directory.rglob("*"))
    modes = (
        {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()},
        {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()},
    )
    assert modes == ({0o700}, {0o600})


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (give_away, "belongs to another user (uid 12345)"),
        (open_to_others, "others can write to"),
        (linked, "belongs to another user (uid 12345)"),
    ],
)
def test_an_entry_that_others_could_have_written_is_a_miss_and_replaced(recorder, attack, reason):
    launch()
    entry = entry_of_put()
    attack(entry)
    kept, told = launch()
    assert not kept and "not used, and the kernel is compiled anew" in told and reason in told
    assert launch() == (True, "")  # what lies there now is our own
    assert entry.lstat().st_uid == os.geteuid() and stat.S_IMODE(entry.lstat().st_mode) == 0o600


def test_nothing_is_read_from_or_kept_in_a_folder_of_another_user(recorder):
    launch()
    entry = entry_of_put()
    there = entry.read_bytes()
    give_away(entry.parent)
    for _ in range(2):
        kept, told = launch()
        assert (
            not kept
            and f"{entry.parent} belongs to another user (uid 12345)" in told
            and "cannot be kept in the cache" in told
        )
    assert [path.read_bytes() for path in entry.parent.iterdir()] == [there]


def test_a_folder_that_others_could_write_to_is_not_read_and_closed_to_them(recorder):
    launch()
    folder = entry_of_put().parent
    folder.chmod(0o777)
    kept, told = launch()
    assert not kept and f"others can write to {folder}" in told
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert launch() == (True, "")


def test_a_folder_that_a_link_leads_to_stays_as_it_is(recorder):
    launch()
    folder = entry_of_put().parent
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    elsewhere.chmod(0o777)
    kept, told = launch()
    assert not kept and "others can write to" in told
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o777


def test_who_shares_the_cache_knowingly_shares_its_entries(recorder, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_SHARED", "1")
    before = os.umask(0o002)
    try:
        launch()
    finally:
        os.umask(before)
    entry = entry_of_put()
    assert (
        stat.S_IMODE(entry.stat().st_mode) == 0o664
        and stat.S_IMODE(entry.parent.stat().st_mode) == 0o775
    )
    give_away(entry)
    assert launch() == (True, "")


def test_what_is_looked_at_is_what_is_read(tmp_path, monkeypatch):
    """A file that is put in the place of another between the look and the reading is looked at
    itself."""
    path, theirs = tmp_path / "entry", tmp_path / "theirs"
    path.write_bytes(b"ours")
    path.chmod(0o600)
    theirs.write_bytes(b"theirs")
    give_away(theirs)
    opened = os.open

    def racing(name, *rest, **keywords):
        if name == path.name:
            os.replace(theirs, path)
        return opened(name, *rest, **keywords)

    monkeypatch.setattr(files.os, "open", racing)
    with pytest.raises(private_folder.UntrustedError, match="belongs to another user"):
        private_folder.read(path, 100)


def test_a_record_of_another_user_is_none(recorder):
    record = Record("k", "s", "k", "d", "t", "c", "b")
    tuning_records.keep(record)
    assert tuning_records.find(record.identity) == record
    (path,) = tuning_records.directory().glob("*.json")
    give_away(path)
    with pytest.warns(
        RuntimeWarning,
        match=r"a record of autotuning is not used: .* belongs to another user \(uid 12345\)",
    ):
        assert tuning_records.find(record.identity) is None
    with pytest.warns(RuntimeWarning, match="is not used"):
        assert list(tuning_records.own_records()) == []


def test_a_file_that_is_written_whole_follows_no_link_and_the_umask(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"of somebody")
    link.symlink_to(target)
    before = os.umask(0o022)
    try:
        files.write_whole(link, b"new")
    finally:
        os.umask(before)
    assert target.read_bytes() == b"of somebody"
    assert (
        not link.is_symlink()
        and link.read_bytes() == b"new"
        and stat.S_IMODE(link.stat().st_mode) == 0o644
    )
