# SPDX-License-Identifier: Apache-2.0
"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from picirc import atomic
from picirc.atomic import replace_files, replacing
from picirc.errors import ArgumentError


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_several_files_take_their_places(tmp_path):
    folder = tmp_path
    for content in (b"1", b"2"):
        replace_files({folder / "a": content, folder / "b": content * 2})
        assert contents(folder) == {"a": content, "b": content * 2}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError(errno.ENOSPC, "No space left on device")])
def test_what_goes_wrong_leaves_the_old_files(tmp_path, error):
    replace_files({tmp_path / "a": b"old", tmp_path / "b": b"old"})

    def failing() -> None:
        with replacing(tmp_path / "a", tmp_path / "b") as (first, _):
            first.write_bytes(b"half")
            raise error

    with pytest.raises(error if isinstance(error, type) else OSError) as caught:
        failing()
    if caught.type is OSError:
        assert str(tmp_path / "a") in str(caught.value)
    assert contents(tmp_path) == {"a": b"old", "b": b"old"}


def test_file_and_folder_are_flushed_before_the_caller_goes_on(tmp_path, monkeypatch):
    events = []
    names = {}
    open_, fsync, replace = os.open, os.fsync, os.replace

    def opened(path, *arguments):
        found = open_(path, *arguments)
        names[found] = Path(path)
        return found

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(("flush", names[fd])), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append(("move", Path(b))), replace(a, b)))
    replace_files({tmp_path / "a": b"x"})
    (first, partial), moved, last = events
    assert (first, partial.parent, partial.suffix) == ("flush", tmp_path, ".partial")
    assert [moved, last] == [("move", tmp_path / "a"), ("flush", tmp_path)]


def test_a_second_file_never_stands_beside_another_first_one(tmp_path, monkeypatch):
    """Whatever the moment of a kill: here before each of the moves."""
    replace_files({tmp_path / "a": b"1", tmp_path / "b": b"1"})
    replace, seen = os.replace, []

    def watch(source, target):
        seen.append({name: content for name, content in contents(tmp_path).items() if name in "ab"})
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    replace_files({tmp_path / "a": b"2", tmp_path / "b": b"2"})
    assert seen == [{"a": b"1"}, {"a": b"2"}]
    assert contents(tmp_path) == {"a": b"2", "b": b"2"}


# Writes two files that belong together, with its own mark, many times.
WRITER = """
import sys
from pathlib import Path
from picirc.atomic import replace_files
folder, mark = Path(sys.argv[1]), sys.argv[2].encode()
for turn in range(150):
    replace_files({folder / "a": mark + b"%d" % turn, folder / "b": mark + b"%d" % turn})
"""


def test_a_file_may_vanish_while_it_is_replaced(tmp_path, monkeypatch):
    """Another writer removes the second file for a moment; to find it and then not to find a file is no error."""
    second, exists = tmp_path / "b", Path.exists

    def removed_after(path, **options):
        found = exists(path, **options)
        if path == second:  # and nothing else: others look at files too while this is in place
            path.unlink(missing_ok=True)
        return found

    replace_files({tmp_path / "a": b"1", second: b"1"})
    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", removed_after)
        replace_files({tmp_path / "a": b"2", second: b"2"})
    assert contents(tmp_path) == {"a": b"2", "b": b"2"}


def test_two_writers_leave_files_that_belong_together(tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), mark]) for mark in "xy"]
    assert [writer.wait() for writer in writers] == [0, 0]
    found = contents(tmp_path)
    assert set(found) == {"a", "b"}
    assert found["a"] == found["b"]


def test_two_threads_that_write_one_file_do_not_meet(tmp_path):
    both = threading.Barrier(2)
    failed = []

    def write(content: bytes) -> None:
        try:
            with replacing(tmp_path / "a") as (path,):
                path.write_bytes(content)
                both.wait()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in (b"1" * 10, b"2" * 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert contents(tmp_path)["a"] in (b"1" * 10, b"2" * 10)
    assert len(contents(tmp_path)) == 1


def test_what_a_killed_process_left_long_ago_is_removed(tmp_path):
    old, new, other = (tmp_path / name for name in (".a[1].0.partial", ".a[1].1.partial", ".b.0.partial"))
    for path in (old, new, other):
        path.write_bytes(b"half")
    long_ago = new.stat().st_mtime - 2 * atomic._STALE
    os.utime(old, (long_ago, long_ago))
    os.utime(other, (long_ago, long_ago))
    replace_files({tmp_path / "a[1]": b"x"})
    assert set(contents(tmp_path)) == {"a[1]", new.name, other.name}  # one may still be written, one is another's


def test_a_folder_or_a_device_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", Path(os.devnull)):
        with pytest.raises(ArgumentError, match="a folder or a device"):
            replace_files({path: b"x"})
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
