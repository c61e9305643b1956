"""The command `ebb-agent`."""

from ebb_common import extras


def main() -> None:
    extras.main_of("node_agent.commands.main", "ebb-agent", "agent")()


if __name__ == "__main__":
    main()
