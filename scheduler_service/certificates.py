"""The files of TLS: which they are, and what is wrong with them, said in words before anybody connects."""

import contextlib
import math
import ssl
from dataclasses import dataclass
from pathlib import Path

DAY = 86400.0
SOON = 30 * DAY
"""Before a certificate expires it is said that it does; of one that is issued for a shorter time, in its last quarter."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files."""

    certificate: Path
    """The service's own certificate, and the intermediate ones up to the CA."""
    key: Path
    client_ca: Path | None = None
    """If set, clients must present a certificate of this CA (mutual TLS)."""

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Modification time and inode of each file, which differ once a file is replaced. Raises OSError."""
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
        if when := _dates(context, self.certificate).wrong:
            raise ValueError(f"tls_certificate: {self.certificate}: {when}, so that nobody would connect; issue another")
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError as error:
                raise ValueError(
                    f"tls_client_ca: {self.client_ca} is no certificate in PEM ({error.reason or error})"
                ) from None

    def reminder(self, now: float) -> str:
        """That the certificate expires soon after `now` (seconds since 1970), or has; mostly nothing.

        Raises OSError and ValueError.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)
        dates = _dates(context, self.certificate)
        if dates.wrong:
            return f"the certificate in {self.certificate} cannot be used: {dates.wrong}. Nobody can connect: renew it there"
        left = dates.ends - now
        if left > min(SOON, (dates.ends - dates.began) / 4):
            return ""
        when = f"{left / DAY:.0f} days" if left > 2 * DAY else f"{left / 3600:.0f} hours"
        return (
            f"the certificate in {self.certificate} expires in {when}, and then nobody can connect: renew it in these files, "
            "which are read without a restart"
        )


@dataclass(frozen=True, slots=True)
class _Dates:
    wrong: str = ""
    """Why the dates are not valid now, in OpenSSL's words; empty if they are."""
    began: float = 0.0
    ends: float = math.inf
    """Seconds since 1970."""


_OF_TIME = (9, 10)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""


def _dates(server: ssl.SSLContext, certificate: Path) -> _Dates:
    """As a client sees them that trusts the certificate itself, in a handshake without a network."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    own, end_of_own, _ = certificate.read_text("ascii", "ignore").partition("-----END CERTIFICATE-----")
    trusting.load_verify_locations(cadata=own + end_of_own)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (trusting.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True))
    try:
        for _ in range(4):  # as often as there is something to answer
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        shown = ends[0].getpeercert() or {}
        began, over = (ssl.cert_time_to_seconds(str(shown[name])) for name in ("notBefore", "notAfter"))
    except ssl.SSLCertVerificationError as error:
        return _Dates(error.verify_message if error.verify_code in _OF_TIME else "")
    except (ssl.SSLError, KeyError, ValueError):
        return _Dates()  # clients that connect report any other fault
    return _Dates("", began, over)


def _no_passphrase() -> str:
    raise ValueError("tls_key: the key is protected by a passphrase, which nobody is there to type; take that off")
