"""The exception for a program that is not parked or not resumed."""


class Refused(Exception):
    """Nothing was moved. The message is the reason, as shown to users."""
