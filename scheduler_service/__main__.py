"""The command `ebb-scheduler`."""

from ebb_common import extras


def main() -> None:
    extras.main_of("scheduler_service.commands.main", "ebb-scheduler", "scheduler")()


if __name__ == "__main__":
    main()
