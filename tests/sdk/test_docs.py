"""The examples of docs/testing-your-code.md, run as a user's project would run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_examples_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "testing-your-code.md").read_text()
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == text.count("```python")
    for name, block in blocks:
        (tmp_path / name).write_text(block)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    where = os.pathsep.join(str(path) for path in (tmp_path, ROOT, ROOT / "proto", ROOT / "third_party"))
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    site = {"EBB_TLS_CA": "/etc/ebb/ca.pem", "EBB_TOKEN_FILE": "/home/ada/.ebb-token", "EBB_VC": "vision"}  # in ada's profile
    environment = {**os.environ, **site, "PYTHONPATH": where}
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{text.count('def test_')} passed" in done.stdout
