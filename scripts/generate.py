"""Generates the Python code of the API and of the agent link from proto/ and third_party/, next to the .proto files.

`--check` writes nothing and fails if the files in the repository differ from those that would be generated.
"""

import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {"proto": "ebb/**/*.proto", "third_party": "buf/validate/*.proto"}
WELL_KNOWN = str(resources.files("grpc_tools") / "_proto")


def generate(out: Path) -> dict[Path, bytes]:
    """Runs protoc into `out`; returns path (relative to the project) -> content."""
    made: dict[Path, bytes] = {}
    for folder, pattern in SOURCES.items():
        target = out / folder
        target.mkdir()
        for source in sorted((ROOT / folder).glob(pattern)):
            services = any(line.startswith("service ") for line in source.read_text().splitlines())
            arguments = [f"-I{ROOT / 'proto'}", f"-I{ROOT / 'third_party'}", f"-I{WELL_KNOWN}"]
            arguments += [f"--python_out={target}", f"--pyi_out={target}"] + [f"--grpc_python_out={target}"] * services
            if protoc.main(["protoc", *arguments, str(source)]) != 0:
                sys.exit(f"protoc failed on {source}")
        made |= {Path(folder) / path.relative_to(target): path.read_bytes() for path in target.rglob("*.py*")}
    return made


def main() -> int:
    with tempfile.TemporaryDirectory() as out:
        made = generate(Path(out))
    kept = {
        p.relative_to(ROOT) for folder in SOURCES for p in (ROOT / folder).rglob("*_pb2*.py*") if "__pycache__" not in p.parts
    }
    stale = sorted(path for path, content in made.items() if path not in kept or (ROOT / path).read_bytes() != content)
    extra = sorted(kept - made.keys())
    if "--check" in sys.argv[1:]:
        if stale or extra:
            sys.stderr.write(f"generated code is out of date, run `make proto`: {[str(p) for p in stale + extra]}\n")
        return 1 if stale or extra else 0
    for path, content in made.items():
        (ROOT / path).write_bytes(content)
    for path in extra:
        (ROOT / path).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
