"""What must hold of usage after each step, whatever the policy: everybody is charged with what their runs hold."""

from scheduler_service.core.model.values import ZERO
from scheduler_service.core.state.state import State
from scheduler_service.policies.fair_share.rules import NAME, rules_of, spent_of

RULES = rules_of({})


def check_charges(state: State) -> None:
    """By the usual CPUs per device. Who is charged has a level in the queue, and levels are to be renewed."""
    spent = {at[1]: spent_of(memo) for at, memo in state.memos.rows.items() if at[0] == NAME and "/usage/" in at[1]}
    charged = {subject for policy, subject in state.charged if policy == NAME}
    assert charged <= set(spent), "somebody is charged, and nothing is remembered of it"
    for subject, remembered in spent.items():
        vc = subject.partition("/")[0]
        if vc and (vc not in state.vc_orders or state.vc_orders[vc].policy != NAME):
            continue  # forgotten with the next period
        assert remembered.rate == RULES.rate(state.charged.get((NAME, subject), ZERO)), subject
        assert (NAME, subject.replace("/usage/", "/level/", 1)) in state.memos.rows
        assert state.memos.rows[NAME, f"{vc}/period"].due_us is not None
