"""Requests that come again, with the request_id of something that is done and perhaps over: they are answered as before."""

from collections.abc import Sequence

from scheduler_service.core.errors import AlreadyExists, LookupNeeded, Refused
from scheduler_service.core.handlers.exchange import check_same_deal, check_same_post
from scheduler_service.core.handlers.submit import check_same_request
from scheduler_service.core.messages import (
    Accepted,
    AcceptRequested,
    Event,
    Exchanged,
    PostingChanged,
    PostRequested,
    Reply,
    Submitted,
)
from scheduler_service.core.state.state import State
from scheduler_service.run.ports import Writer


def answer_repeats(
    state: State, writer: Writer, events: Sequence[Event], replies: Sequence[Reply | Exception]
) -> list[Reply | Exception]:
    """The replies, but for what is refused now and was done before: by what may not be any more (its dependency has failed,
    its virtual cluster is gone) nobody is to be told that there is no such job. Raises NotCommitted."""
    told = list(replies)
    refused = [
        i
        for i, event in enumerate(events)
        if getattr(event, "request_id", "")
        and isinstance(told[i], Refused)
        and not isinstance(told[i], AlreadyExists | LookupNeeded)
    ]
    if refused:
        for place, known in done_before(state, writer, [events[i] for i in refused]).items():
            told[refused[place]] = known
    return told


def done_before(state: State, writer: Writer, events: Sequence[Event]) -> dict[int, Reply | Exception]:
    """Return the answer of each event (by position) whose request_id belongs to something in the database.

    The answer is AlreadyExists if the earlier request with that ID differed. Raises NotCommitted.
    """

    def of_vc(event: PostRequested | AcceptRequested) -> tuple[int, str]:
        return state.vc_ids.get(event.vc, 0), event.request_id

    submits = writer.find_requests([(e.user, e.request_id) for e in events if isinstance(e, Submitted)])
    posts = writer.find_posted([of_vc(e) for e in events if isinstance(e, PostRequested)])
    deals = writer.find_accepted([of_vc(e) for e in events if isinstance(e, AcceptRequested)])
    answers: dict[int, Reply | Exception] = {}
    for i, event in enumerate(events):
        try:
            match event:
                case Submitted() if job := submits.get((event.user, event.request_id)):
                    check_same_request(job, event)
                    answers[i] = Accepted(job.id)
                case PostRequested() if posting := posts.get(of_vc(event)):
                    check_same_post(posting, event)
                    answers[i] = PostingChanged(posting.id)
                case AcceptRequested() if exchange := deals.get(of_vc(event)):
                    check_same_deal(exchange, event)
                    answers[i] = Exchanged((exchange.id,))
        except AlreadyExists as other:
            answers[i] = other
    return answers
