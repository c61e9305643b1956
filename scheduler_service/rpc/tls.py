"""TLS of the service. A certificate that is renewed on disk is used from the next connection on, without a restart."""

import logging
import time
from typing import Any

import grpc

from scheduler_service.certificates import DAY, TlsFiles

log = logging.getLogger(__name__)


def credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Raises OSError and ValueError when the files cannot be used now."""
    files.check()
    used = files.stamp()
    refused: tuple[tuple[int, int], ...] | None = None
    remind(files)
    reminded = time.monotonic()

    def renew_if_changed() -> Any:
        """Asked at each new connection; None: as before."""
        nonlocal used, refused, reminded
        try:
            if time.monotonic() - reminded > DAY:
                reminded = time.monotonic()
                remind(files)
            stamp = files.stamp()
            if stamp in (used, refused):
                return None
            refused = stamp  # until it is known to be good: a file that is half written has another stamp when it is whole
            files.check()
            configuration = _configuration(files)
        except (OSError, ValueError) as error:
            log.error("the certificate is not renewed, the old one goes on: %s", error)
            return None
        used, refused = stamp, None
        log.info("the certificate in %s was renewed", files.certificate)
        remind(files)
        return configuration

    return grpc.dynamic_ssl_server_credentials(_configuration(files), renew_if_changed, files.client_ca is not None)


def remind(files: TlsFiles) -> None:
    """Says in the log that the certificate expires soon, if it does."""
    if reminder := files.reminder(time.time()):
        log.warning("%s", reminder)


def _configuration(files: TlsFiles) -> Any:
    roots = None if files.client_ca is None else files.client_ca.read_bytes()
    pair = files.key.read_bytes(), files.certificate.read_bytes()
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)
