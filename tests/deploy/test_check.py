"""Which tests `make check` runs for a change."""

from scripts import check


def chosen(*paths: str) -> set[str]:
    return {str(test.relative_to(check.HERE)) for test in check.tests_beside([check.HERE / path for path in paths])}


def test_a_changed_test_and_the_one_that_is_named_after_a_module_are_run() -> None:
    assert chosen("tests/core/test_candidates.py") == {"tests/core/test_candidates.py"}
    assert "tests/core/test_preemption_rights.py" in chosen("scheduler_service/core/state/preemption_rights.py")


def test_of_very_many_tests_the_closest_are_run() -> None:
    of_all = chosen("tests/core/test_candidates.py", "scheduler_service/core/engine.py", "scheduler_service/core/enact.py")
    assert len(of_all) == check.MOST_TESTS
    assert "tests/core/test_candidates.py" in of_all


def test_tests_that_start_whole_sites_are_left_to_make_test() -> None:
    assert not any(path.startswith(("tests/e2e", "tests/deploy")) for path in chosen("client_sdk/client.py"))
