"""The fast keys are the keys of the records."""

from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.ledger.keys import request_keys
from reasoner.records import GenerationRequest, Sampling

SAMPLINGS = st.builds(
    Sampling,
    temperature=st.floats(0, 2) | st.integers(0, 1),
    top_p=st.floats(0, 1),
    top_k=st.integers(0, 100),
    max_tokens=st.integers(1, 4096),
    stop=st.lists(st.text()).map(tuple),
    choices=st.lists(st.text()).map(tuple),
)
REQUESTS = st.builds(
    GenerationRequest,
    problem_id=st.text(),
    prompt=st.text() | st.sampled_from(['a "quote"', "é\n\u2028"]),
    sampling=SAMPLINGS,
    seed=st.integers(-(2**63), 2**63),
    index=st.integers(0, 10**6),
    add_special_tokens=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(requests=st.lists(REQUESTS, max_size=3), fingerprint=st.text())
def test_they_are_the_same(requests: list[GenerationRequest], fingerprint: str) -> None:
    assert request_keys(requests, fingerprint) == [request.key(fingerprint) for request in requests]
    assert request_keys(requests, {"": fingerprint}) == [request.key(fingerprint) for request in requests]


def test_equal_settings_of_other_types_keep_their_own_keys() -> None:
    """1 == 1.0 == True in Python but not in JSON: a cache must not mix them up."""
    requests = [
        GenerationRequest("p", "q", Sampling(temperature=temperature), seed=seed)
        for temperature, seed in ((1.0, 0), (1, 0), (True, 0), (0.0, 0), (-0.0, 0), (0, 0))
    ]
    assert request_keys(requests, "f") == [request.key("f") for request in requests]


def test_a_request_without_choices_keeps_the_key_that_it_had_before_there_were_choices() -> None:
    plain = GenerationRequest("p", "q", Sampling(0.7, 0.9, 5, 100, ("x",)), seed=3, index=2)
    assert plain.key("f") == "e040dd4169f7b0b8dc0998d7b213d9d1"
    assert plain.key("f") != GenerationRequest("p", "q", Sampling(choices=("a",)), seed=3, index=2).key("f")
