"""The two clients. Each call of Weir has its equal in AsyncWeir."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any, Iterator, Sequence

import httpx

from ._decision import (
    Claim,
    Decision,
    OnFailure,
    Problem,
    Request,
    Unanswered,
    by_policy,
    document_of,
    read_answer,
    read_decision,
    text_of,
)

_SETTLE_TRIES = 3
_JSON = {"Content-Type": "application/json"}
_POLICIES = ("pass", "refuse", "raise")


def _options(url: str, token: str | None, timeout: float, on_failure: OnFailure) -> dict[str, Any]:
    if on_failure not in _POLICIES:
        raise ValueError(f"on_failure is {on_failure!r}; allowed: {', '.join(_POLICIES)}")
    if timeout <= 0:
        raise ValueError(f"timeout is {timeout}; allowed: more than 0 seconds")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return {"base_url": url, "timeout": timeout, "headers": headers}


def _settlement(token: str, actual: int | None, status: int | None, json: Any) -> dict[str, Any]:
    if actual is None and status is None and json is None:
        raise ValueError("settle needs the actual cost, or the status or the JSON of the response")
    return document_of(None, (), token=token, actual=actual, status=status, json=json)


class _Try:
    """One of several tries to settle. It keeps errors that the next try may mend."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.done = False

    def __enter__(self) -> _Try:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if isinstance(error, Unanswered):
            return self._number < _SETTLE_TRIES
        # A conflict after a try without an answer says that this try did settle.
        conflict = isinstance(error, Problem) and error.status == 409 and self._number > 1
        self.done = error is None or conflict
        return conflict


def _tries() -> Iterator[_Try]:
    for number in range(1, _SETTLE_TRIES + 1):
        this = _Try(number)
        yield this
        if this.done:
            return


class Weir:
    """A client for threads; it may be shared by all.

    url is the address of the API, such as http://127.0.0.1:8080. timeout bounds each call, in seconds. on_failure says
    what is decided when weir does not answer: "pass", "refuse", or "raise" Unanswered. A call that weir does not take
    raises Problem in any case: it is a mistake of the caller, and no failure.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 0.25,
        on_failure: OnFailure = "pass",
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(transport=transport, **_options(url, token, timeout, on_failure))
        self._on_failure = on_failure

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Weir:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decide(
        self,
        request: Request | None = None,
        claims: Sequence[Claim] = (),
        *,
        cost: int | None = None,
        times: int | None = None,
        id: str | None = None,
        answer_http: bool = False,
    ) -> Decision:
        """Decides a request by the rules of the server, limits of the caller (claims), or both, and charges it."""
        document = document_of(request, claims, cost=cost, times=times, id=id)
        return self._decide("/v1/decide", document, {"answer": "http"} if answer_http else None)

    def peek(self, request: Request | None = None, claims: Sequence[Claim] = (), *, cost: int | None = None) -> Decision:
        """Decides without charging."""
        return self._decide("/v1/peek", document_of(request, claims, cost=cost))

    def reserve(
        self,
        request: Request | None = None,
        claims: Sequence[Claim] = (),
        *,
        cost: int | None = None,
        ttl: str | None = None,
        id: str | None = None,
    ) -> Reserved:
        """Charges an estimate, which settle corrects. ttl is how long it can be settled, such as "10m"."""
        document = document_of(request, claims, cost=cost, ttl=ttl, id=id)
        return Reserved(self, self._decide("/v1/reserve", document))

    def hold(self, request: Request | None = None, claims: Sequence[Claim] = (), *, cost: int | None = None) -> Held:
        """Holds units of concurrency limits until the end of the with statement; a thread renews them."""
        document = document_of(request, claims, cost=cost)
        return Held(self, self._decide("/v1/acquire", document))

    def reset(self, request: Request | None = None, claims: Sequence[Claim] = ()) -> None:
        """Deletes the counts and bans of the request's rules and of the claims."""
        self._call("/v1/reset", document_of(request, claims))

    def _decide(self, path: str, document: dict[str, Any], query: dict[str, str] | None = None) -> Decision:
        try:
            return read_decision(self._call(path, document, query))
        except Unanswered as error:
            return by_policy(self._on_failure, error)

    def _call(self, path: str, document: dict[str, Any], query: dict[str, str] | None = None) -> dict[str, Any]:
        try:
            response = self._http.post(path, content=text_of(document), headers=_JSON, params=query)
        except httpx.TransportError as error:
            raise Unanswered(f"weir does not answer: {type(error).__name__}: {error}") from error
        return read_answer(response.status_code, response.content)

    def _settle(self, document: dict[str, Any]) -> None:
        for this in _tries():
            with this:
                self._call("/v1/settle", document)


class Reserved:
    """An estimate that is charged. If it is not settled, it stays charged."""

    def __init__(self, weir: Weir, decision: Decision) -> None:
        self._weir = weir
        self.decision = decision

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    def settle(self, actual: int | None = None, *, status: int | None = None, json: Any = None) -> None:
        """States the actual cost, once; 0 cancels. It does nothing if weir did not answer the reservation.

        status and json are those of the response, for rules that read them; json may be a list of a stream's events.
        It tries again if the answer is lost, and raises Unanswered if the last try has no answer: then it may be
        called again with the same cost.
        """
        if self.decision.token:
            self._weir._settle(_settlement(self.decision.token, actual, status, json))


class Held:
    """Units of concurrency limits, held until the end of a with statement. lost is set when they are gone."""

    def __init__(self, weir: Weir, decision: Decision) -> None:
        self._weir = weir
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="weir-renew", daemon=True)
        self.decision = decision
        self.lost = threading.Event()

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    def __enter__(self) -> Held:
        if self.decision.token:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not self.decision.token:
            return
        self._stop.set()
        self._thread.join()
        try:
            self._weir._call("/v1/release", {"token": self.decision.token})
        except (Problem, Unanswered):
            pass  # it is gone, or expires after its time-to-live

    def _renew(self) -> None:
        while not self._stop.wait(self.decision.ttl / 3):
            try:
                self._weir._call("/v1/renew", {"token": self.decision.token})
            except Unanswered:
                continue  # the next try is within the time-to-live
            except Problem:
                self.lost.set()
                return


class AsyncWeir:
    """Weir for asyncio."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 0.25,
        on_failure: OnFailure = "pass",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(transport=transport, **_options(url, token, timeout, on_failure))
        self._on_failure = on_failure

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncWeir:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def decide(
        self,
        request: Request | None = None,
        claims: Sequence[Claim] = (),
        *,
        cost: int | None = None,
        times: int | None = None,
        id: str | None = None,
        answer_http: bool = False,
    ) -> Decision:
        """See Weir.decide."""
        document = document_of(request, claims, cost=cost, times=times, id=id)
        return await self._decide("/v1/decide", document, {"answer": "http"} if answer_http else None)

    async def peek(
        self, request: Request | None = None, claims: Sequence[Claim] = (), *, cost: int | None = None
    ) -> Decision:
        """See Weir.peek."""
        return await self._decide("/v1/peek", document_of(request, claims, cost=cost))

    async def reserve(
        self,
        request: Request | None = None,
        claims: Sequence[Claim] = (),
        *,
        cost: int | None = None,
        ttl: str | None = None,
        id: str | None = None,
    ) -> AsyncReserved:
        """See Weir.reserve."""
        document = document_of(request, claims, cost=cost, ttl=ttl, id=id)
        return AsyncReserved(self, await self._decide("/v1/reserve", document))

    async def hold(
        self, request: Request | None = None, claims: Sequence[Claim] = (), *, cost: int | None = None
    ) -> AsyncHeld:
        """Holds units of concurrency limits until the end of the async with statement; a task renews them."""
        document = document_of(request, claims, cost=cost)
        return AsyncHeld(self, await self._decide("/v1/acquire", document))

    async def reset(self, request: Request | None = None, claims: Sequence[Claim] = ()) -> None:
        """See Weir.reset."""
        await self._call("/v1/reset", document_of(request, claims))

    async def _decide(self, path: str, document: dict[str, Any], query: dict[str, str] | None = None) -> Decision:
        try:
            return read_decision(await self._call(path, document, query))
        except Unanswered as error:
            return by_policy(self._on_failure, error)

    async def _call(self, path: str, document: dict[str, Any], query: dict[str, str] | None = None) -> dict[str, Any]:
        try:
            response = await self._http.post(path, content=text_of(document), headers=_JSON, params=query)
        except httpx.TransportError as error:
            raise Unanswered(f"weir does not answer: {type(error).__name__}: {error}") from error
        return read_answer(response.status_code, response.content)

    async def _settle(self, document: dict[str, Any]) -> None:
        for this in _tries():
            with this:
                await self._call("/v1/settle", document)


class AsyncReserved:
    """Reserved for asyncio."""

    def __init__(self, weir: AsyncWeir, decision: Decision) -> None:
        self._weir = weir
        self.decision = decision

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    async def settle(self, actual: int | None = None, *, status: int | None = None, json: Any = None) -> None:
        """See Reserved.settle."""
        if self.decision.token:
            await self._weir._settle(_settlement(self.decision.token, actual, status, json))


class AsyncHeld:
    """Held for asyncio."""

    def __init__(self, weir: AsyncWeir, decision: Decision) -> None:
        self._weir = weir
        self._task: asyncio.Task[None] | None = None
        self.decision = decision
        self.lost = asyncio.Event()

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    async def __aenter__(self) -> AsyncHeld:
        if self.decision.token:
            self._task = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is None:
            return
        self._task.cancel()
        try:
            await asyncio.shield(self._weir._call("/v1/release", {"token": self.decision.token}))
        except (Problem, Unanswered):
            pass  # it is gone, or expires after its time-to-live

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.decision.ttl / 3)
            try:
                await self._weir._call("/v1/renew", {"token": self.decision.token})
            except Unanswered:
                continue  # the next try is within the time-to-live
            except Problem:
                self.lost.set()
                return
