"""Seals, which prove that a cluster was led in an epoch.

A database that was restored from a backup counts epochs that agents have obeyed already, and a leader has to go above them.
An agent's word for that is not enough, or any of them could end a leadership. So each Welcome carries a seal of its epoch,
which the cluster's own schedulers alone can make, and an agent that claims a higher epoch must show the seal.
"""

import hashlib
import hmac


class Seals:
    """Makes and checks the seals of one cluster. Takes some 20 ms and 4 MiB to set up."""

    def __init__(self, cluster_id: str, seed: int) -> None:
        # The seed has 62 bits, and agents see what is made of it: each guess must be expensive.
        self._key = hashlib.scrypt(b"%d" % seed, salt=cluster_id.encode(), n=2**12, r=8, p=1, dklen=32)

    def seal_of(self, epoch: int) -> bytes:
        return hmac.digest(self._key, b"epoch %d" % epoch, "sha256")

    @property
    def transfer_key(self) -> bytes:
        """The key by which the cluster's agents authenticate to each other. It never changes."""
        return hmac.digest(self._key, b"transfers between agents", "sha256")

    def fits(self, epoch: int, seal: bytes) -> bool:
        return hmac.compare_digest(self.seal_of(epoch), seal)
