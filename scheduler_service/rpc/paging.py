"""Pages of a list: how much is on one, and where it begins. A token is the id of what was last on the page before."""

DEFAULT_PAGE = 100
_LAST_ID = 2**63 - 1  # the largest that the database can be asked about


def last_id(page_token: str) -> int | None:
    """The id after which the page begins in the list; None: it is the first page."""
    return min(int(page_token), _LAST_ID) if page_token else None
