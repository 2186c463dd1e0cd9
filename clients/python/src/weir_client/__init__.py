"""Asks a weir server whether a request is within its limits.

    weir = Weir("http://127.0.0.1:8080")
    decision = weir.decide({"method": "POST", "path": "/login", "client": "203.0.113.7"})
    if not decision.allowed:
        ...  # answer 429, with Retry-After: decision.retry_after
"""

from ._decision import Check, Claim, Decision, OnFailure, Problem, Request, Response, Unanswered
from ._clients import AsyncHeld, AsyncReserved, AsyncWeir, Held, Reserved, Weir

__all__ = [
    "AsyncHeld",
    "AsyncReserved",
    "AsyncWeir",
    "Check",
    "Claim",
    "Decision",
    "Held",
    "OnFailure",
    "Problem",
    "Request",
    "Reserved",
    "Response",
    "Unanswered",
    "Weir",
]
