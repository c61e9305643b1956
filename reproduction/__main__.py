"""`python -m reproduction`: reproduces the tables and figures of the papers."""

from importlib import import_module

import click

from scheduler_service.sim.cli import Commands

STUDIES = {
    "allox": "Figures 11 to 18 of the AlloX paper: jobs that run on GPUs or on CPUs.",
    "hived": "Figures 6 to 12 and tables 4 and 5 of the HiveD paper: sharing by quotas, and in virtual clusters.",
    "fitgpp": "The FitGpp paper's tables and figures, and its policies on public traces.",
    "scores": "Other ways to choose victims, against FitGpp's.",
    "gandiva": "Time slices, packing and early feedback (Gandiva, OSDI 2018).",
    "packing": "Pairs that probing packs, against the best possible pairs.",
    "together": "FitGpp, HiveD, AlloX and Gandiva at once, and each alone.",
}


class Reproduction(Commands):
    """Each command comes from a module that is imported when the command is called, and not for the help."""

    program = "python -m reproduction"

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(STUDIES)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in STUDIES:
            return None
        found: click.Command = import_module(MODULES[name]).command
        return found

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(STUDIES.items()))


MODULES = {
    **{name: f"reproduction.{name}.study" for name in ("allox", "hived", "fitgpp", "gandiva")},
    "scores": "reproduction.victim_selection",
    "packing": "reproduction.packing",
    "together": "reproduction.four_papers",
}


@click.group(
    name="reproduction", cls=Reproduction, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
def main() -> None:
    """Reproduce the tables and figures of a paper."""


if __name__ == "__main__":
    main(prog_name="python -m reproduction")
