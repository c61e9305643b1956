"""A fake cluster inside the test's own process, for tests of code that uses Ebb.

>>> from client_sdk import testing
>>> with testing.cluster() as fake, fake.client() as client:
...     job = client.wait(client.submit(["python", "train.py"]))
>>> job.state.name, job.exit_code
('SUCCEEDED', 0)

No job is really run: the test decides how each ends. Everything else is the service itself, in this process and with its data
in memory. A real `Client`, `AsyncClient` or `ebb` connects to it over the loopback interface, so code under test that makes its
own client needs no change, only the address. The test can choose a policy and the settings of the service (see `cluster`).
"""

from client_sdk.testing._fake import NODES, FakeCluster, cluster
from client_sdk.testing._script import Outcome, Script

__all__ = ["NODES", "FakeCluster", "Outcome", "Script", "cluster"]
