// WEIR_URL is a server with the rules of rules.yaml, and WEIR_CASES the file cases.json.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Problem, Reserved, Unanswered, Weir, type Decision, type Question } from "../src/index.js";

const url = process.env["WEIR_URL"]!;
const cases = JSON.parse(readFileSync(process.env["WEIR_CASES"]!, "utf8"));

interface Step {
  call: "decide" | "peek" | "reserve" | "settle" | "reset";
  send: Record<string, any>;
  want?: Record<string, unknown>;
  problem?: Record<string, unknown>;
}

/** own gives the step's keys to this language alone. */
function own(send: Record<string, any>): any {
  const copy = structuredClone(send);
  for (const claim of copy["claims"] ?? []) claim.key = "ts-" + claim.key;
  if (copy["id"]) copy["id"] = "ts-" + copy["id"];
  if (copy["request"]?.client) copy["request"].client = "203.0.113.99";
  return copy;
}

for (const each of cases) {
  test(each.name, async () => {
    const weir = new Weir(url, { timeout: 10_000, onFailure: "throw" });
    let reserved: Reserved | undefined;
    const call = async (step: Step): Promise<Decision | void> => {
      if (step.call === "settle") return reserved!.settle(step.send);
      if (step.call !== "reserve") return weir[step.call](own(step.send));
      reserved = await weir.reserve(own(step.send));
      return reserved.decision;
    };
    for (const step of each.steps as Step[]) {
      if (step.problem) {
        const want = step.problem;
        await assert.rejects(call(step), (error: Problem) => {
          assert.ok(error instanceof Problem);
          for (const [name, value] of Object.entries(want)) assert.equal(error[name as keyof Problem], value);
          return true;
        });
        continue;
      }
      const decision = await call(step);
      for (const [name, value] of Object.entries(step.want ?? {})) {
        assert.equal(decision![name as keyof Decision], value, name);
      }
    }
  });
}

test("the whole response", async () => {
  const weir = new Weir(url, { timeout: 10_000 });
  const request = { method: "POST", path: "/login", client: "198.51.100.99" };
  assert.ok((await weir.decide({ request, cost: 2 }, true)).response!.headers["Ratelimit-Policy"]);
  const refused = await weir.decide({ request }, true);
  assert.equal(refused.response!.status, 429);
  assert.equal(Number(refused.response!.headers["Retry-After"]), refused.retry_after);
});

const sleep = (ms: number) => new Promise((done) => setTimeout(done, ms));

test("a lease is renewed and released", async () => {
  const weir = new Weir(url, { timeout: 10_000 });
  const question: Question = { request: { path: "/exports/1", user: "ts" } };
  const result = await weir.hold(question, async (lost) => {
    await sleep(3000); // the lease has two seconds
    assert.equal((await weir.peek(question)).allowed, false);
    assert.equal(lost.aborted, false);
    assert.equal(await weir.hold(question, async () => "ran", (d) => d.reason), "limit_exceeded");
    return 42;
  });
  assert.equal(result, 42);
  await assert.rejects(weir.hold(question, async () => { throw new Error("work failed"); }), /work failed/);
  assert.equal((await weir.peek(question)).allowed, true);
});

test("a lease that is gone is noticed", async () => {
  const weir = new Weir(url, { timeout: 10_000 });
  const question: Question = { request: { path: "/exports/1", user: "gone-ts" } };
  await weir.hold(question, async (lost) => {
    await weir.reset(question);
    await new Promise((done) => lost.addEventListener("abort", done));
  });
});

type Answer = Error | [number, unknown];

/** answering is a client whose calls are answered so, one after the other. */
function answering(onFailure: "pass" | "refuse" | "throw", ...answers: Answer[]): Weir {
  const left = [...answers];
  return new Weir(url, {
    onFailure,
    fetch: async () => {
      const next = left.shift()!;
      if (next instanceof Error) throw next;
      const [status, body] = next;
      return new Response(typeof body === "string" ? body : JSON.stringify(body), { status });
    },
  });
}

const passed = { allowed: true, outcome: "passed", reason: "within_limits", granted: 1, checks: [] };
const reservation: Answer = [200, { ...passed, reservation: { token: "t", ttl_us: 1e6 } }];
const conflict: Answer = [409, { status: 409, title: "Conflict", detail: "it is settled already" }];
const lost = new Error("timeout");

const failures: Record<string, Answer> = {
  "no connection": new Error("refused"),
  "the store is down": [503, { allowed: false, outcome: "failed", reason: "store_failed", granted: 0, checks: [] }],
  "an answer that is cut": [200, '{"allowed": tr'],
  "a proxy's page": [502, "<html>"],
  "another document": [200, []],
};

for (const [name, failure] of Object.entries(failures)) {
  test(`the policy decides: ${name}`, async () => {
    const question = { request: { path: "/" } };
    const pass = await answering("pass", failure).decide(question);
    assert.deepEqual([pass.allowed, pass.answered], [true, false]);
    const refuse = await answering("refuse", failure).decide(question);
    assert.deepEqual([refuse.allowed, refuse.retry_after], [false, 1]);
    await assert.rejects(answering("throw", failure).decide(question), Unanswered);
  });
}

test("a server that does not answer in time", async () => {
  const awake = setTimeout(() => {}, 60_000); // the timer of a signal does not keep the program
  const weir = new Weir(url, {
    timeout: 20,
    fetch: (_, init) => new Promise((_, reject) => init!.signal!.addEventListener("abort", () => reject(init!.signal!.reason))),
  });
  assert.equal((await weir.decide({ request: { path: "/" } })).answered, false);
  clearTimeout(awake);
});

test("a mistake is no failure", async () => {
  const weir = answering("pass", [401, { status: 401, detail: "the token is unknown" }]);
  await assert.rejects(weir.decide({ request: { path: "/" } }), /the token is unknown/);
});

// Its connection might break: a user of a service could choose that the policy decides.
test("a call that is too long is no failure", async () => {
  const weir = answering("pass", new Error("broken pipe"));
  const question = { request: { path: "/", json: { text: "é".repeat(1 << 19) } } };
  await assert.rejects(weir.decide(question), (error) => error instanceof Problem && error.status === 413);
});

test("a settlement whose answer is lost", async () => {
  const question = { request: { path: "/" } };
  await (await answering("pass", reservation, lost, conflict).reserve(question)).settle({ actual: 3 });
  const twice = await answering("pass", reservation, conflict).reserve(question);
  await assert.rejects(twice.settle({ actual: 3 }), Problem);
  const never = await answering("pass", reservation, lost, lost, lost).reserve(question);
  await assert.rejects(never.settle({ actual: 3 }), Unanswered);
});

test("a reservation without an answer has nothing to settle", async () => {
  const reserved = await answering("pass", lost).reserve({ request: { path: "/" } });
  assert.equal(reserved.allowed, true);
  await reserved.settle({ actual: 1 });
  await assert.rejects(reserved.settle({}), RangeError);
});

test("options are checked", () => {
  assert.throws(() => new Weir(url, { timeout: 0 }), RangeError);
  assert.throws(() => new Weir(url, { onFailure: "ignore" as "pass" }), RangeError);
});
