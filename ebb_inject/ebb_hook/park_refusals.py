"""Why a program is not parked or not resumed."""


class Refused(Exception):
    """Nothing was moved. The message is the reason, as shown to users."""
