"""The command `ebb-scheduler`. Says which extra to install where a training image has the SDK alone."""

import sys


def main() -> None:
    try:
        from scheduler_service.commands.main import main as run
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] in sys.stdlib_module_names | {"scheduler_service"}:
            raise
        sys.exit(f"ebb-scheduler needs {missing.name}, which this installation lacks: pip install 'ebb-cluster[scheduler]'")
    run()


if __name__ == "__main__":
    main()
