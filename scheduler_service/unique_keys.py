"""Files in YAML in which each key stands once."""

from typing import Any

import yaml


class UniqueKeys(yaml.SafeLoader):
    """Refuses a key that is given twice, of which the last would win silently, and one that is no name."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
                if key.tag != "tag:yaml.org,2002:str":
                    told = f"{key.value!r} is no name here; one that looks like a number or yes or no must be in quotes"
                    raise yaml.constructor.ConstructorError(None, None, told, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)
