"""WEIR_URL is a server with the rules of rules.yaml, and WEIR_CASES the file cases.json."""

import asyncio
import inspect
import json
import os
import pathlib
import time
import unittest

import httpx

from weir_client import AsyncWeir, Problem, Unanswered, Weir

URL = os.environ["WEIR_URL"]
CASES = json.loads((pathlib.Path(os.environ["WEIR_CASES"])).read_text())
EXPORT = {"path": "/exports/1", "user": "python"}


def in_sync(weir):
    """An AsyncWeir whose calls are waited for, so that one test has both clients."""
    loop = asyncio.new_event_loop()

    class Sync:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            attribute = getattr(self.inner, name)
            if not inspect.iscoroutinefunction(attribute):
                return attribute
            return lambda *args, **named: self.wrapped(loop.run_until_complete(attribute(*args, **named)))

        def wrapped(self, result):
            return Sync(result) if hasattr(result, "settle") or hasattr(result, "lost") else result

    return Sync(weir)


def clients(**options):
    yield Weir(URL, timeout=10, **options)
    yield in_sync(AsyncWeir(URL, timeout=10, **options))


def shown(decision):
    return {**vars(decision)}


class Cases(unittest.TestCase):
    def test_cases(self):
        for number, weir in enumerate(clients(on_failure="raise")):
            for case in CASES:
                with self.subTest(case["name"], client=number):
                    self.run_case(weir, case, f"python-{number}-")

    def run_case(self, weir, case, prefix):
        reserved = None
        for step in case["steps"]:
            send = json.loads(json.dumps(step["send"]))
            for claim in send.get("claims", []):
                claim["key"] = prefix + claim["key"]
            if "id" in send:
                send["id"] = prefix + send["id"]
            if "client" in send.get("request", {}):
                send["request"]["client"] = f"203.0.113.{prefix[-2]}"
            call = reserved.settle if step["call"] == "settle" else getattr(weir, step["call"])
            if "problem" in step:
                with self.assertRaises(Problem) as caught:
                    call(**send)
                for name, want in step["problem"].items():
                    self.assertEqual(getattr(caught.exception, name), want)
                continue
            result = call(**send)
            if step["call"] == "reserve":
                reserved, result = result, result.decision
            for name, want in step.get("want", {}).items():
                self.assertEqual(shown(result)[name], want, name)


class Responses(unittest.TestCase):
    def test_the_whole_response(self):
        for number, weir in enumerate(clients()):
            request = {"method": "POST", "path": "/login", "client": f"198.51.100.{number}"}
            self.assertTrue(weir.decide(request, cost=2, answer_http=True).response.headers["Ratelimit-Policy"])
            refused = weir.decide(request, answer_http=True)
            self.assertEqual(refused.response.status, 429)
            self.assertEqual(int(refused.response.headers["Retry-After"]), refused.retry_after)
            self.assertEqual(refused.checks[0].rule, "login")


class Holding(unittest.TestCase):
    def test_a_lease_is_renewed_and_released(self):
        weir = Weir(URL, timeout=10)
        with weir.hold(EXPORT) as held:
            self.assertTrue(held.allowed)
            end = time.monotonic() + 3  # the lease has two seconds
            while time.monotonic() < end:
                self.assertFalse(weir.peek(EXPORT).allowed)
            self.assertFalse(held.lost.is_set())
            with weir.hold(EXPORT) as second:
                self.assertFalse(second.allowed)
        self.assertTrue(weir.peek(EXPORT).allowed)

    def test_a_lease_of_asyncio(self):
        async def holds():
            async with AsyncWeir(URL, timeout=10) as weir:
                request = {"path": "/exports/1", "user": "asyncio"}
                async with await weir.hold(request) as held:
                    self.assertTrue(held.allowed)
                    await asyncio.sleep(3)
                    self.assertFalse((await weir.peek(request)).allowed)
                    self.assertFalse(held.lost.is_set())
                self.assertTrue((await weir.peek(request)).allowed)

        asyncio.run(holds())

    def test_a_lease_that_is_gone_is_noticed(self):
        weir = Weir(URL, timeout=10)
        request = {"path": "/exports/1", "user": "gone"}
        with weir.hold(request) as held:
            weir.reset(request)
            self.assertTrue(held.lost.wait(30))


def answers(*responses):
    """A transport that answers so, one after the other: a status and a document or bytes, or an exception."""
    left = list(responses)

    def handle(request):
        response = left.pop(0)
        if isinstance(response, Exception):
            raise response
        status, content = response
        return httpx.Response(status, content=content if isinstance(content, bytes) else json.dumps(content).encode())

    return httpx.MockTransport(handle)


PASSED = {"allowed": True, "outcome": "passed", "reason": "within_limits", "granted": 1, "checks": []}
FAILED = {"allowed": False, "outcome": "failed", "reason": "store_failed", "granted": 0, "checks": []}
RESERVED = {**PASSED, "reservation": {"token": "t", "ttl_us": 1000000}}
CONFLICT = {"status": 409, "title": "Conflict", "type": "about:blank", "detail": "it is settled already"}

FAILURES = {
    "no connection": httpx.ConnectError("refused"),
    "no answer in time": httpx.ReadTimeout("timeout"),
    "the store is down": (503, FAILED),
    "an answer that is cut": (200, b'{"allowed": tr'),
    "a proxy's page": (502, b"<html>"),
    "another document": (200, []),
}


def with_answers(*responses, **options):
    yield Weir(URL, transport=answers(*responses), **options)
    yield in_sync(AsyncWeir(URL, transport=answers(*responses), **options))


class Failures(unittest.TestCase):
    def test_the_policy_decides(self):
        for name, failure in FAILURES.items():
            with self.subTest(name):
                for weir in with_answers(failure):
                    decision = weir.decide({"path": "/"})
                    self.assertTrue(decision.allowed)
                    self.assertFalse(decision.answered)
                for weir in with_answers(failure, on_failure="refuse"):
                    decision = weir.decide({"path": "/"})
                    self.assertFalse(decision.allowed)
                    self.assertEqual(decision.retry_after, 1)
                for weir in with_answers(failure, on_failure="raise"):
                    with self.assertRaises(Unanswered):
                        weir.decide({"path": "/"})

    def test_a_mistake_is_no_failure(self):
        for weir in with_answers((401, {"status": 401, "detail": "the token is unknown"})):
            with self.assertRaisesRegex(Problem, "the token is unknown"):
                weir.decide({"path": "/"})

    def test_a_call_that_is_too_long_is_no_failure(self):
        """Its connection might break: a user of a service could choose that the policy decides."""
        for weir in with_answers():
            with self.assertRaises(Problem) as raised:
                weir.decide({"path": "/", "json": {"text": "é" * (1 << 19)}})
            self.assertEqual(raised.exception.status, 413)

    def test_half_a_pair_is_a_mistake(self):
        for weir in clients():
            with self.assertRaises(Problem):
                weir.decide({"path": "/", "user": "\ud800"})

    def test_a_settlement_whose_answer_is_lost(self):
        lost = httpx.ReadTimeout("timeout")
        for weir in with_answers((200, RESERVED), lost, (409, CONFLICT)):
            weir.reserve({"path": "/"}).settle(3)
        for weir in with_answers((200, RESERVED), (409, CONFLICT)):
            with self.assertRaises(Problem):
                weir.reserve({"path": "/"}).settle(3)
        for weir in with_answers((200, RESERVED), lost, lost, lost):
            with self.assertRaises(Unanswered):
                weir.reserve({"path": "/"}).settle(3)

    def test_a_reservation_without_an_answer_has_nothing_to_settle(self):
        for weir in with_answers(httpx.ConnectError("refused")):
            reserved = weir.reserve({"path": "/"}, cost=3)
            self.assertTrue(reserved.allowed)
            reserved.settle(1)

    def test_options_are_checked(self):
        for options in ({"on_failure": "ignore"}, {"timeout": 0}):
            with self.assertRaises(ValueError):
                Weir(URL, **options)


if __name__ == "__main__":
    unittest.main()
