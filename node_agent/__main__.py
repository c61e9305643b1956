"""The command `ebb-agent`. Says which extra to install where a training image has the SDK alone."""

import sys


def main() -> None:
    try:
        from node_agent.commands.main import main as run
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] in sys.stdlib_module_names | {"node_agent"}:
            raise
        sys.exit(f"ebb-agent needs {missing.name}, which this installation lacks: pip install 'ebb-cluster[agent]'")
    run()


if __name__ == "__main__":
    main()
