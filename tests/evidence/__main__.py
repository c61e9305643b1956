"""`python -m tests.evidence [NAME ...]`: takes the evidence of all scenarios, or of those named, and keeps it."""

import json
import sys

from tests.evidence.digests import Evidence, keep
from tests.evidence.scenarios import SCENARIOS
from tests.evidence.test_digests import KEPT


def main(names: list[str]) -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    results = {name: result for name, result in kept.items() if name in SCENARIOS}
    for name in names or SCENARIOS:
        evidence = Evidence()
        SCENARIOS[name](evidence)
        result = evidence.result()
        sys.stdout.write(f"{name}: {'as before' if kept.get(name) == result else 'CHANGED'} ({result['steps']} steps)\n")
        results[name] = result
        keep(name, evidence.lines)
    KEPT.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
