"""The table of requests: each has one entry until its answer is handed out or given back."""

from __future__ import annotations

import weakref

import pytest

from tierfeed._native import Requests


class Answer:
    """Stands for a batch; one that goes back is dropped."""


@pytest.fixture
def requests() -> Requests:
    made = Requests()
    made.sent([(0, 0), (0, 1), (0, 2)])
    return made


def test_only_what_is_not_requested_is_missing(requests: Requests) -> None:
    assert requests.missing([(0, 3), (0, 1), (1, 0)]) == [(0, 3), (1, 0)]
    requests.answer((0, 1), Answer())
    assert requests.missing([(0, 1)]) == []


def test_an_answer_is_handed_out_once(requests: Requests) -> None:
    assert requests.take((0, 1)) is None, "it has not come"
    answer = Answer()
    requests.answer((0, 1), answer)
    assert (0, 1) in requests and not requests.is_in_flight((0, 1))
    assert (requests.in_flight, requests.answered) == ({(0, 0), (0, 2)}, {(0, 1)})
    assert requests.take((0, 1)) is answer
    assert requests.take((0, 1)) is None
    assert (0, 1) not in requests and len(requests) == 2


def test_an_answer_to_an_abandoned_request_goes_back(requests: Requests) -> None:
    requests.abandon((0, 1))
    assert (0, 1) not in requests and not requests.is_in_flight((0, 1))
    assert len(requests) == 3, "it cannot be called back"
    answer = Answer()
    dropped = weakref.ref(answer)
    requests.answer((0, 1), answer)
    del answer
    assert dropped() is None
    assert requests.missing([(0, 1)]) == [(0, 1)]


def test_an_abandoned_request_that_is_wanted_again_is_not_sent_twice(requests: Requests) -> None:
    requests.abandon((0, 1))
    assert requests.missing([(0, 1)]) == []
    answer = Answer()
    requests.answer((0, 1), answer)
    assert requests.take((0, 1)) is answer


def test_what_is_not_kept_goes_back_now_or_when_it_comes(requests: Requests) -> None:
    early, late = Answer(), Answer()
    dropped = [weakref.ref(early), weakref.ref(late)]
    requests.answer((0, 1), early)
    del early
    requests.keep_only([(0, 0)])
    assert dropped[0]() is None
    requests.answer((0, 2), late)
    del late
    assert dropped[1]() is None
    assert requests.in_flight == {(0, 0)} and len(requests) == 1


def test_an_answer_that_was_not_asked_for_goes_back(requests: Requests) -> None:
    answer = Answer()
    dropped = weakref.ref(answer)
    requests.answer((5, 5), answer)
    del answer
    assert dropped() is None and len(requests) == 3
