"""The files of TLS: which they are, and what is wrong with them, said in words before anybody connects."""

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files."""

    certificate: Path
    """The service's own, and those between it and the CA."""
    key: Path
    client_ca: Path | None = None
    """Set: who connects must show a certificate of this CA (mutual TLS)."""

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Differs once a file has been written anew. Raises OSError."""
        files = [path.stat() for path in (self.certificate, self.key, self.client_ca) if path is not None]
        return tuple((file.st_mtime_ns, file.st_ino) for file in files)

    def check(self) -> None:
        """Raises ValueError, naming the setting, where a file cannot be read or does not fit the others."""
        settings = {"tls_certificate": self.certificate, "tls_key": self.key, "tls_client_ca": self.client_ca}
        for name, path in settings.items():
            if path is not None:
                try:
                    path.read_bytes()
                except OSError as error:
                    raise ValueError(f"{name}: {path} cannot be read: {error.strerror}") from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise ValueError(f"tls_key: {self.key} is not the key of the certificate {self.certificate}") from None
            what = f"{self.certificate} and {self.key} are not a certificate and its key in PEM ({error.reason or error})"
            raise ValueError(f"tls_certificate, tls_key: {what}") from None
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError as error:
                raise ValueError(
                    f"tls_client_ca: {self.client_ca} is no certificate in PEM ({error.reason or error})"
                ) from None


def _no_passphrase() -> str:
    raise ValueError("tls_key: the key is protected by a passphrase, which nobody is there to type; take that off")
