"""The codec of recordings: what is written is read as it was, and nothing else is."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core import model as rows
from scheduler_service.core.messages import Event, NodeSeen, RunExited, Submitted
from scheduler_service.core.model import Job, JobSpec, RunKey
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import Vector
from scheduler_service.run.recording.codec import CodecError, canonical, decode, encoder
from tests.store import make

encode = encoder()
text = canonical()
EVENTS = get_args(Event)
st.register_type_strategy(VcPolicy, make.vc_policies)  # without NaN, which equals nothing
SUBMITTED = Submitted("ada", "r", JobSpec(("true",), Vector(1, 2, 3), environment=(("A", "b"),)))


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@given(st.data())
def test_every_event_comes_back(kind: type, data: st.DataObject) -> None:
    event: Any = data.draw(st.from_type(kind))
    back = decode(Event, json.loads(encode(event)))
    assert (type(back), back) == (kind, event)
    assert text(back) == text(event)


@given(make.clusters())
def test_every_row_comes_back(cluster: list[Any]) -> None:
    for row in cluster:
        back = decode(type(row), json.loads(encode(row)))
        assert back == row
        assert text(back) == text(row)


def test_types_come_back_and_not_only_equal_values() -> None:
    seen = decode(RunExited, json.loads(encode(RunExited("n", "b", 1, RunKey(7, 1)))))
    assert type(seen.key) is RunKey
    job = decode(Job, json.loads(encode(make.job(1))))
    assert (type(job.state), type(job.spec.demand)) == (rows.JobState, Vector)


def spoiled(change: Any) -> Any:
    name, fields = json.loads(encode(SUBMITTED))
    change(fields)
    return [name, fields]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.update(colour="red"), r"unknown \['colour'\]"),
        (lambda f: f.pop("user"), r"missing \['user'\]"),
        (lambda f: f.update(user=7), "Submitted.user: str expected, found 7"),
        (lambda f: f.update(grace_given=1), "bool expected"),
        (lambda f: f["spec"][1].update(grace_us=1.0), "int expected, found 1.0"),
        (lambda f: f["spec"][1].update(grace_us=True), "int expected, found True"),
        (lambda f: f["spec"][1].update(job_class=99), "JobClass expected, found 99"),
        (lambda f: f["spec"][1].update(demand=[1, 2]), "Vector expected"),
        (lambda f: f["spec"][1].update(command="true"), "expected, found 'true'"),
        (lambda f: f["spec"][1].update(environment=[["A"]]), "expected, found"),
        (lambda f: f["spec"].__setitem__(0, "Spec"), "JobSpec expected"),
    ],
)
def test_what_is_not_as_it_must_be_is_refused(change: Any, said: str) -> None:
    with pytest.raises(CodecError, match=said):
        decode(Event, spoiled(change))


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, ["Nobody", {}], [["Submitted"], {}], ["Submitted"]])
def test_what_is_no_event_is_refused(value: Any) -> None:
    with pytest.raises(CodecError):
        decode(Event, value)


def test_equal_values_have_one_canonical_text_however_they_were_made() -> None:
    made = make.job(1)
    other = object.__new__(Job)
    other.__dict__.update(dict(reversed(made.__dict__.items())))
    assert encode(other) != encode(made)
    assert text(other) == text(made)


def test_what_nobody_meant_to_record_is_an_error() -> None:
    with pytest.raises(TypeError, match="not meant to be in a recording"):
        encode(NodeSeen("n", "b", object()))  # type: ignore[arg-type]
