"""Certificates for tests, made by the program `openssl`, as docs/operating.md has sites make them."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    """Files in PEM."""

    certificate: Path
    key: Path


class Authority:
    """A CA of its own, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.certificate = folder / "ca.pem"
        key = ("-x509", *_NEW_KEY, "-keyout", folder / "ca.key", "-out", self.certificate)
        _openssl("req", *key, "-days", "2", "-subj", f"/CN={folder.name}")

    def issue(self, name: str, *addresses: str, days: int = 1) -> Pair:
        """A certificate; a service's is for these, such as DNS:localhost or IP:127.0.0.1."""
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        _openssl("req", *_NEW_KEY, "-keyout", pair.key, "-out", request, "-subj", f"/CN={name}")
        extensions.write_text(f"subjectAltName={','.join(addresses)}\n" if addresses else "")
        signed_by = ("-CA", self.certificate, "-CAkey", self._folder / "ca.key", "-CAcreateserial", "-days", str(days))
        _openssl("x509", "-req", "-in", request, *signed_by, "-extfile", extensions, "-out", pair.certificate)
        return pair


def lock(key: Path, locked: Path) -> None:
    """Writes the key again, protected by a passphrase."""
    _openssl("pkcs8", "-topk8", "-in", key, "-passout", "pass:secret", "-out", locked)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *arguments], capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
