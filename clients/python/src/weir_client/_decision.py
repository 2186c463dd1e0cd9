"""What is sent and what is answered. No input or output is done here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, Mapping, Sequence, TypedDict

OnFailure = Literal["pass", "refuse", "raise"]


class Request(TypedDict, total=False):
    """A request as rules match it. Parts that are left out are missing."""

    method: str
    host: str
    path: str
    route: str
    user: str
    service: str
    client: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    cookies: Mapping[str, str]
    descriptors: Mapping[str, str]
    json: Any  # the body, for rules that read it; None: the request has none


class _Claim(TypedDict):
    name: str
    limit: str
    key: str


class Claim(_Claim, total=False):
    """A limit of the caller: a name, a limit such as "fixed_window 3/1h", and the key that is counted.

    floor is units that the claim leaves to others. member and weight name the member of a fair limit, such as of
    "fair_fixed_window 100/1m above 50". fixed, in a reservation: settle does not change the cost of this claim.
    """

    cost: int
    floor: int
    member: str
    weight: int
    fixed: bool


class Unanswered(Exception):
    """weir, or its store, did not answer. Whether units were charged is unknown."""


class Problem(Exception):
    """weir does not take the call: a wrong value, a wrong token, or a lease that is gone. Nothing was charged."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(document.get("detail") or f"weir answers {status}")
        self.status = status
        self.field: str | None = document.get("field")
        self.value: str | None = document.get("value")
        self.allowed: str | None = document.get("allowed")


@dataclass(frozen=True)
class Check:
    """The state of one limit after the decision. Times are in seconds; retry_after is -1 if no wait helps."""

    name: str
    limit: str
    rule: str | None
    cost: int
    remaining: int
    retry_after: float
    reset_after: float


@dataclass(frozen=True)
class Response:
    """What to send to the client of the request, if the decision was asked with answer_http."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class Decision:
    """What weir decided.

    retry_after is whole seconds, rounded up; 0: now, -1: never. answered is False if weir or its store did not answer
    and the policy of the client decided.
    """

    allowed: bool
    outcome: str
    reason: str
    granted: int = 0
    rule: str | None = None
    name: str | None = None
    limit: str | None = None
    remaining: int | None = None
    retry_after: int = 0
    delay: float = 0.0
    message: str | None = None
    repeated: bool = False
    degraded: bool = False
    answered: bool = True
    checks: Sequence[Check] = field(default=())
    response: Response | None = None
    token: str | None = None
    ttl: float = 0.0


def read_decision(document: Mapping[str, Any]) -> Decision:
    """Reads an answer. A member that is not known is left out: a newer server may have it."""
    held = document.get("reservation") or document.get("lease") or {}
    response = document.get("response")
    return Decision(
        allowed=document["allowed"],
        outcome=document["outcome"],
        reason=document["reason"],
        granted=document["granted"],
        rule=document.get("rule"),
        name=document.get("name"),
        limit=document.get("limit"),
        remaining=document.get("remaining"),
        retry_after=document.get("retry_after", 0),
        delay=document.get("delay_us", 0) / 1e6,
        message=document.get("message"),
        repeated=document.get("repeated", False),
        degraded=document.get("degraded", False),
        checks=tuple(_read_check(c) for c in document["checks"]),
        response=Response(response["status"], response["headers"], response["body"]) if response else None,
        token=held.get("token"),
        ttl=held.get("ttl_us", 0) / 1e6,
    )


def _read_check(c: Mapping[str, Any]) -> Check:
    wait = c.get("retry_after_us", 0)
    return Check(
        name=c["name"],
        limit=c["limit"],
        rule=c.get("rule"),
        cost=c.get("cost", 0),
        remaining=c.get("remaining", 0),
        retry_after=wait / 1e6 if wait >= 0 else -1,
        reset_after=c.get("reset_after_us", 0) / 1e6,
    )


def document_of(request: Request | None, claims: Sequence[Claim], **rest: Any) -> dict[str, Any]:
    """The document of a call. Members that are None are left out."""
    document = {name: value for name, value in rest.items() if value is not None}
    if request is not None:
        document["request"] = request
    if claims:
        document["claims"] = list(claims)
    return document


MAX_BODY = 1 << 20
"""The bytes of a call that weir takes."""


def text_of(document: Mapping[str, Any]) -> bytes:
    """The text of a document. Too long a text is not sent: the connection might break, which looks like an outage."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    body = text.encode("utf-8", "surrogatepass")  # weir refuses half a pair
    if len(body) > MAX_BODY:
        raise Problem(413, {"detail": f"the body has over {MAX_BODY} bytes"})
    return body


def read_answer(status: int, body: bytes) -> dict[str, Any]:
    """Reads the body of a response with this status, or raises Unanswered or Problem."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise Unanswered(f"the answer, with the status {status}, is not JSON") from error
    if not isinstance(document, dict):
        raise Unanswered("the answer is not a JSON object")
    if status >= 500 or document.get("reason") == "store_failed" and not document.get("allowed"):
        raise Unanswered(document.get("detail") or f"weir answers {status}: its store does not answer")
    if status >= 400:
        raise Problem(status, document)
    return document


def by_policy(on_failure: OnFailure, error: Unanswered) -> Decision:
    """The decision of the client itself."""
    if on_failure == "raise":
        raise error
    if on_failure == "pass":
        return Decision(allowed=True, outcome="passed", reason="unanswered", granted=1, answered=False)
    return Decision(allowed=False, outcome="failed", reason="unanswered", retry_after=1, answered=False)
