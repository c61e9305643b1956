"""Job files: what `ebb submit` is told, in YAML."""

from typing import IO, Any, Self

from client_sdk.cli import job_options
from client_sdk.cli.option_values import unknown
from client_sdk.errors import InvalidArgument


class Written:
    """A number that remembers how it was written: as a word of a command, or in the environment, 010 is not 8, nor 3.10 3.1."""

    text = ""

    def with_text(self, text: str) -> Self:
        self.text = text
        return self

    def __str__(self) -> str:
        return self.text


class Whole(Written, int):
    pass


class Fraction(Written, float):
    pass


def read(file: IO[str]) -> dict[str, Any]:
    """The keys and values of a job file. Raises InvalidArgument, which names what is wrong."""
    import yaml

    from ebb_common.unique_keys import UniqueKeys

    class Loader(UniqueKeys):
        """Keeps of a number how it was written."""

        def number(self, node: yaml.ScalarNode) -> Whole | Fraction:
            if node.tag.endswith("int"):
                return Whole(self.construct_yaml_int(node)).with_text(node.value)
            return Fraction(self.construct_yaml_float(node)).with_text(node.value)

    for kind in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.number)
    try:
        found = yaml.load(file, Loader)
    except (yaml.YAMLError, ValueError) as error:  # also where it is no UTF-8, and of numbers that no computer has
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        raise InvalidArgument(f"{file.name}{place}: it is not YAML: {getattr(error, 'problem', None) or error}") from error
    if not isinstance(found, dict):
        raise InvalidArgument(f"{file.name}: a job file has keys and values, such as `command: [python, train.py]`")
    known: dict[str, Any] = {}
    for said, value in found.items():
        key = "devices" if said == "gpus" else str(said).replace("-", "_")
        if key in known:
            raise InvalidArgument(f"{file.name}: {said!r} is said twice, as {key!r}")
        known[key] = value
        if key not in job_options.KEYS:
            raise InvalidArgument(f"{file.name}: {unknown(key, job_options.KEYS, 'a job file')}")
    return known
