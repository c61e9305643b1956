"""YAML loaders that reject duplicate keys."""

from typing import Any

import yaml

_MERGE, _TEXT = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:str"


class UniqueKeys(yaml.SafeLoader):
    """Refuses a key that is given twice; plain YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


class UniqueNames(UniqueKeys):
    """Refuses also a key that YAML does not read as text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag not in (_MERGE, _TEXT):
                told = f"{key.value!r} is no name here; one that looks like a number or yes or no must be in quotes"
                raise yaml.constructor.ConstructorError(None, None, told, key.start_mark)
        return super().construct_mapping(node, deep)
