"""Baselines at a URL: whatever fsspec knows (s3://, gs://, https://, memory://)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracekit.baselines.files import MAX_BYTES, checked
from tracekit.errors import InputError, UsageError


class Remote:
    """Files under a URL. An object store shows an upload when it is whole; names are of their content, so nothing is overwritten by anything else.

    Args:
        url: such as ``s3://bucket/baselines``.

    Raises:
        UsageError: nobody knows this kind of URL, or its package is not installed.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        self._url = url.rstrip("/")
        try:
            self._fs, self._root = fsspec.core.url_to_fs(self._url)
        except (ValueError, ImportError) as e:
            raise UsageError(f"{url}: {e}; name a folder, git:BRANCH, or a URL whose fsspec package is installed (s3fs, gcsfs, adlfs)") from e

    def __str__(self) -> str:
        return self._url

    def names(self, under: str) -> list[str]:
        """Names of the files under a folder, sorted."""
        try:
            self._fs.invalidate_cache()
            found = self._fs.find(f"{self._root}/{checked(under)}")
        except FileNotFoundError:
            return []
        except Exception as e:
            raise InputError(f"cannot be listed: {_word(e)}", self._url) from e
        top = self._root.strip("/") + "/"
        return sorted(n.strip("/").removeprefix(top) for n in found)

    def read(self, name: str) -> bytes:
        """A file's bytes."""
        try:
            path = f"{self._root}/{checked(name)}"
            if (self._fs.size(path) or 0) > MAX_BYTES:
                raise InputError(f"larger than {MAX_BYTES:,} bytes, which no snapshot is", f"{self._url}/{name}")
            data: bytes = self._fs.cat_file(path)
            return data
        except InputError:
            raise
        except Exception as e:
            raise InputError(f"cannot be read: {_word(e)}", f"{self._url}/{name}") from e

    def write(self, files: Iterable[tuple[str, bytes]], message: str) -> None:
        """Write files, those too that are there: then they are new, and nobody prunes what is about to be pointed to."""
        for name, data in files:
            path = f"{self._root}/{checked(name)}"
            try:
                self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
                self._fs.pipe_file(path, data)
            except Exception as e:
                raise UsageError(f"cannot write {self._url}/{name}: {_word(e)}") from e

    def delete(self, names: Iterable[str], message: str) -> None:
        """Delete files."""
        for name in names:
            try:
                self._fs.rm_file(f"{self._root}/{checked(name)}")
            except FileNotFoundError:
                continue
            except Exception as e:
                raise UsageError(f"cannot delete {self._url}/{name}: {_word(e)}") from e

    def modified(self, name: str) -> int | None:
        """When a file was last written."""
        try:
            written: float = self._fs.modified(f"{self._root}/{checked(name)}").timestamp()
            return round(written * 1e9)
        except Exception:
            # some places do not say, and fail in their own ways
            return None


def _word(error: Any) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
