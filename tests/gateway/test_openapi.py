"""Schemathesis: whatever the document allows or forbids, the gateway answers as the document says."""

import os

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from gateway_rig import Served, served
from net_rig import PATIENCE_S
from tidings.net.gateway import openapi

SOAK = bool(os.environ.get("TIDINGS_SOAK"))
DOCUMENT = schemathesis.openapi.from_dict(openapi.document())
OPERATIONS = {
    f"{method.upper()} {path}": (path, method.upper())
    for path, methods in openapi.document()["paths"].items()
    for method in methods
    if method != "parameters"
}


def takes_anything(path: str, method: str) -> bool:
    item = openapi.document()["paths"][path]
    return "parameters" in item or not {"parameters", "requestBody"}.isdisjoint(item[method.lower()])


# JSON Schema cannot say all that an event or a filter must fulfil: that a time is still to come, that text is a filter.
MAY_REFUSE = {"POST /events", "POST /subscriptions", "PUT /subscriptions/{id}", "POST /explain"}


@pytest.fixture(scope="module")
def server():
    with served() as server:
        yield server


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, GenerationMode.POSITIVE) for name in OPERATIONS),
        *((name, GenerationMode.NEGATIVE) for name in OPERATIONS if takes_anything(*OPERATIONS[name])),
    ],
)
def test_the_gateway_does_what_its_document_says(server: Served, name: str, mode: GenerationMode) -> None:
    for known in server.ask("GET", "/subscriptions").json():  # a stream of events would not end
        server.ask("DELETE", f"/subscriptions/{known['id']}", code=204)
    path, method = OPERATIONS[name]
    session = requests.Session()
    excluded = [positive_data_acceptance] if name in MAY_REFUSE else []

    @given(case=DOCUMENT[path][method].as_strategy(generation_mode=mode))
    @settings(max_examples=200 if SOAK else 15, suppress_health_check=list(HealthCheck))
    def answers(case: schemathesis.Case) -> None:
        assume(not (isinstance(case.body, dict) and "sink" in case.body))  # nobody is to hear of our tests
        case.call_and_validate(base_url=server.url, session=session, timeout=PATIENCE_S, excluded_checks=excluded)

    answers()
    session.close()
