"""``triton.runtime.cache``: directories of files by key.

They have the files of kernels (:mod:`tilewright.compat.triton.compiler.kept`), and other files of
tools.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.compat.triton import knobs
from tilewright.compat.triton.version import VERSION
from tilewright.runtime.storage import private_folder
from tilewright.runtime.storage.files import warn_user


class CacheManager(ABC):
    """The files of one key.

    ``override`` and ``dump`` say that they lie in the directories of those names.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:  # noqa: B027
        pass

    @abstractmethod
    def get_file(self, filename: str) -> str | None:
        """The path of a file; None where there is none."""

    @abstractmethod
    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Keep bytes or text under a name; gives the path."""

    @abstractmethod
    def get_group(self, filename: str) -> dict[str, str] | None:
        """The paths of the files that were put as one group; None where one of them is gone."""

    @abstractmethod
    def put_group(self, filename: str, group: dict[str, str]) -> Any:
        """Remember files, by name, as one group."""


class FileCacheManager(CacheManager):
    """Files in ``<directory>/<key>``.

    A file is written beside its place and renamed, so that a reader sees all of it or nothing.
    Programs run the files: they and their folders are for their owner alone, and those that others
    could write to are not used (:mod:`tilewright.runtime.storage.private_folder`).

    Raises:
        RuntimeError: there is no directory to use.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        settings = knobs.cache
        directory = (
            settings.dump_dir if dump else settings.override_dir if override else settings.dir
        )
        if not directory:
            raise RuntimeError("Could not create or locate cache dir")
        self.cache_dir = os.path.join(directory, key)
        self.lock_path: str | None = (
            None if override and not dump else os.path.join(self.cache_dir, "lock")
        )
        if self.lock_path is not None:
            private_folder.make(Path(self.cache_dir), Path(directory))

    def _make_path(self, filename: str) -> str:
        return os.path.join(self.cache_dir, filename)

    def has_file(self, filename: str) -> bool:
        return os.path.exists(self._make_path(filename))

    def get_file(self, filename: str) -> str | None:
        """Return the path of a file, or None.

        A file that another user could have written counts as missing, with a warning.
        """
        path = self._make_path(filename)
        if not os.path.exists(path):
            return None
        # who can write to the folder above puts another in the place of the one that was looked at
        reason = next(
            filter(None, map(private_folder.distrust, (Path(path), *Path(path).parents[:2]))), ""
        )
        if reason:
            warn_user(f"a file of a kernel is not used: {reason}")
            return None
        return path

    def get_group(self, filename: str) -> dict[str, str] | None:
        path = self.get_file(f"__grp__{filename}")
        if path is None:
            return None
        members = _members(path)
        return (
            members if members is not None and all(map(os.path.exists, members.values())) else None
        )

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        return self.put(json.dumps({"child_paths": group}), f"__grp__{filename}", binary=False)

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        assert self.lock_path is not None, (
            "the files that override kernels are the user's: nothing is put there"
        )
        path = self._make_path(filename)
        private_folder.write(
            Path(path),
            data if isinstance(data, bytes) else str(data).encode(),
            Path(self.cache_dir).parent,
        )
        return path


def _members(path: str) -> dict[str, str] | None:
    """Return the files of a group by name; None where the file at the path is damaged."""
    try:
        members = json.loads(Path(path).read_bytes())["child_paths"]
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return None
    return (
        members
        if isinstance(members, dict) and all(isinstance(member, str) for member in members.values())
        else None
    )


class RemoteCacheBackend:
    """A store of files by name that several machines share. Subclasses say how."""

    def __init__(self, key: str) -> None:
        pass

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """The contents of those files that are there."""
        raise NotImplementedError(f"{type(self).__name__} must define get()")

    def put(self, filename: str, data: bytes) -> Any:
        """Keep a file."""
        raise NotImplementedError(f"{type(self).__name__} must define put()")


class RedisRemoteCacheBackend(RemoteCacheBackend):
    """A Redis server (``TRITON_REDIS_HOST``, ``TRITON_REDIS_PORT``); needs the package redis."""

    def __init__(self, key: str) -> None:
        import redis  # type: ignore[import-not-found]

        self._key = key
        self._key_fmt = knobs.redis.key_format
        self._redis = redis.Redis(host=knobs.redis.host, port=knobs.redis.port)

    def _get_key(self, filename: str) -> str:
        return self._key_fmt.format(key=self._key, filename=filename)

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        found = self._redis.mget([self._get_key(filename) for filename in filenames])
        return {
            filename: data
            for filename, data in zip(filenames, found, strict=True)
            if data is not None
        }

    def put(self, filename: str, data: bytes) -> Any:
        return self._redis.set(self._get_key(filename), data)


class RemoteCacheManager(CacheManager):
    """Files of a :class:`RemoteCacheBackend`, written to local files on demand.

    ``TRITON_REMOTE_CACHE_BACKEND`` names the backend.

    Raises:
        RuntimeError: no backend is set.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        backend = knobs.cache.remote_manager_class
        if backend is None:
            raise RuntimeError(
                "Unable to instantiate RemoteCacheManager, TRITON_REMOTE_CACHE_BACKEND doesn't "
                "point to a valid class"
            )
        self._backend: Any = backend(key)
        self._local_only = override or dump
        self._files = FileCacheManager(key, override=override, dump=dump)

    def get_file(self, filename: str) -> str | None:
        if self._local_only:
            return self._files.get_file(filename)
        # the store is asked even for what lies here, so that it knows what is in use
        found = self._backend.get([filename])
        return self._files.put(found[filename], filename) if filename in found else None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        if self._local_only:
            return self._files.put(data, filename, binary=binary)
        data = data if isinstance(data, bytes) else str(data).encode()
        self._backend.put(filename, data)
        return self._files.put(data, filename)

    def get_group(self, filename: str) -> dict[str, str] | None:
        if self._local_only:
            return self._files.get_group(filename)
        path = self.get_file(f"__grp__{filename}")
        if path is None:
            return None
        members = json.loads(Path(path).read_text()).get("child_paths")
        if members is None:
            return None
        found = self._backend.get(members)
        return (
            {name: self._files.put(data, name) for name, data in found.items()}
            if len(found) == len(members)
            else None
        )

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        if self._local_only:
            return self._files.put_group(filename, group)
        return self.put(json.dumps({"child_paths": sorted(group)}), f"__grp__{filename}")


def base32(key: str) -> str:
    """Hex digits as the shorter text that names a directory."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


#: The name that PyTorch's compiler knows.
_base32 = base32


def get_cache_manager(key: str) -> CacheManager:
    """The files of a key (hex SHA-256), by the class that ``TRITON_CACHE_MANAGER`` names."""
    manager: type[CacheManager] = knobs.cache.manager_class or FileCacheManager
    return manager(base32(key))


def get_override_manager(key: str) -> CacheManager:
    """Files that replace a stage of a kernel, where ``TRITON_KERNEL_OVERRIDE=1``."""
    manager: type[CacheManager] = knobs.cache.manager_class or FileCacheManager
    return manager(base32(key), override=True)


def get_dump_manager(key: str) -> CacheManager:
    """Where the stages of a kernel are written, where ``TRITON_KERNEL_DUMP=1``."""
    manager: type[CacheManager] = knobs.cache.manager_class or FileCacheManager
    return manager(base32(key), dump=True)


def make_so_cache_key(
    version_hash: str, signature: Mapping[Any, str], constants: Any, ids: Any, **kwargs: Any
) -> str:
    """The key of a shared library that launches kernels of a signature."""
    types = "".join("ptr" if type_.startswith("*") else type_ for type_ in signature.values())
    parts = (
        version_hash,
        types,
        str(constants),
        str(ids),
        *(str(value) for value in kwargs.values()),
    )
    return base32(hashlib.sha256("-".join(parts).encode()).hexdigest())


@functools.cache
def triton_key() -> str:
    """A text that changes whenever compiled kernels may: of Tilewright, and of all its backends."""
    from tilewright.plugins.registry import registry
    from tilewright.runtime.storage.cache_keys import backend_version, core_version

    return "-".join(
        (
            VERSION,
            core_version(),
            *(str(backend_version(backend)) for backend in registry().backends()),
        )
    )


def get_cache_key(src: Any, backend: Any, backend_options: Any, env_vars: Mapping[str, Any]) -> str:
    """The text that a compiled kernel is kept under."""
    return (
        f"{triton_key()}-{src.hash()}-{backend.hash()}-{backend_options.hash()}-"
        f"{sorted(env_vars.items())}"
    )


__all__ = [
    "CacheManager",
    "FileCacheManager",
    "RedisRemoteCacheBackend",
    "RemoteCacheBackend",
    "RemoteCacheManager",
    "get_cache_key",
    "get_cache_manager",
    "get_dump_manager",
    "get_override_manager",
    "knobs",
    "make_so_cache_key",
    "triton_key",
]
