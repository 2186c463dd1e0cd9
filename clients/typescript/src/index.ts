/** Asks a weir server whether a request is within its limits. */

/** A request as rules match it. Parts that are left out are missing. */
export interface Request {
  method?: string;
  host?: string;
  path?: string;
  route?: string;
  user?: string;
  service?: string;
  client?: string;
  headers?: Record<string, string>;
  query?: Record<string, string>;
  cookies?: Record<string, string>;
  descriptors?: Record<string, string>;
  /** The body, for rules that read it; null: the request has none. */
  json?: unknown;
}

/** A limit of the caller: a name, a limit such as "fixed_window 3/1h", and the key that is counted. */
export interface Claim {
  name: string;
  limit: string;
  key: string;
  cost?: number;
  /** Units that the claim leaves to others: it is granted only if they fit besides its cost. */
  floor?: number;
  /** The member of a fair limit, such as of "fair_fixed_window 100/1m above 50". */
  member?: string;
  /** The member's part of such a limit, 1 to 1000; by default 1. */
  weight?: number;
  /** Of a reservation: settle does not change its cost. */
  fixed?: boolean;
}

/** What is decided: a request by the rules of the server, limits of the caller, or both. */
export interface Question {
  request?: Request;
  claims?: Claim[];
  /** Units, for the rules and claims without a cost of their own. */
  cost?: number;
}

/** The state of one limit after the decision. Times are microseconds; retry_after_us is -1 if no wait helps. */
export interface Check {
  name: string;
  limit: string;
  rule?: string;
  cost: number;
  remaining: number;
  retry_after_us: number;
  reset_after_us: number;
}

/** What weir decided, in the names of the HTTP API. */
export interface Decision {
  allowed: boolean;
  outcome: "passed" | "refused" | "denied" | "failed";
  reason: string;
  granted: number;
  rule?: string;
  name?: string;
  limit?: string;
  remaining?: number;
  /** Whole seconds, rounded up; 0: now, -1: never. */
  retry_after?: number;
  delay_us?: number;
  message?: string;
  repeated?: boolean;
  degraded?: boolean;
  checks: Check[];
  response?: { status: number; headers: Record<string, string>; body: string };
  reservation?: { token: string; ttl_us: number };
  lease?: { id: string; token: string; ttl_us: number };
  /** False if weir or its store did not answer, and the policy of the client decided. */
  answered: boolean;
}

/** weir, or its store, did not answer. Whether units were charged is unknown. */
export class Unanswered extends Error {
  override name = "Unanswered";
}

/** weir does not take the call: a wrong value, a wrong token, or a lease that is gone. Nothing was charged. */
export class Problem extends Error {
  override name = "Problem";
  readonly field: string | undefined;
  readonly value: string | undefined;
  readonly allowed: string | undefined;

  constructor(readonly status: number, document: Record<string, unknown>) {
    super(text(document["detail"]) ?? `weir answers ${status}`);
    this.field = text(document["field"]);
    this.value = text(document["value"]);
    this.allowed = text(document["allowed"]);
  }
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

export interface Options {
  /** The bearer token of the API. */
  token?: string;
  /** Bounds each call, in milliseconds; by default 250. */
  timeout?: number;
  /** What is decided when weir does not answer; by default "pass". "throw" throws Unanswered. */
  onFailure?: "pass" | "refuse" | "throw";
  fetch?: typeof fetch;
}

const settleTries = 3;
/** The bytes of a call that weir takes. */
const maxBody = 1 << 20;
const policies = ["pass", "refuse", "throw"];

/** A client. One is enough for a program. */
export class Weir {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #timeout: number;
  readonly #onFailure: "pass" | "refuse" | "throw";
  readonly #fetch: typeof fetch;

  constructor(url: string, options: Options = {}) {
    this.#url = url.replace(/\/$/, "");
    this.#headers = { "Content-Type": "application/json" };
    if (options.token) this.#headers["Authorization"] = `Bearer ${options.token}`;
    this.#timeout = options.timeout ?? 250;
    this.#onFailure = options.onFailure ?? "pass";
    this.#fetch = options.fetch ?? fetch;
    if (!(this.#timeout > 0)) throw new RangeError(`timeout is ${this.#timeout}; allowed: more than 0 ms`);
    if (!policies.includes(this.#onFailure)) {
      throw new RangeError(`onFailure is ${this.#onFailure}; allowed: ${policies.join(", ")}`);
    }
  }

  /** Decides, and charges. With answerHTTP the decision has the whole response to the client of the request. */
  decide(question: Question & { times?: number; id?: string }, answerHTTP = false): Promise<Decision> {
    return this.#decide(answerHTTP ? "/v1/decide?answer=http" : "/v1/decide", question);
  }

  /** Decides without charging. */
  peek(question: Question): Promise<Decision> {
    return this.#decide("/v1/peek", question);
  }

  /** Charges an estimate, which settle corrects. ttl is how long it can be settled, such as "10m". */
  async reserve(question: Question & { ttl?: string; id?: string }): Promise<Reserved> {
    const decision = await this.#decide("/v1/reserve", question);
    return new Reserved(decision, (body) => this.#settle(body));
  }

  /**
   * Runs work while units of concurrency limits are held, and returns what it returns. Without a grant work is not
   * run, and refused is called. The lease is renewed; lost is aborted when it is gone.
   */
  async hold<T, R = undefined>(
    question: Question,
    work: (lost: AbortSignal, decision: Decision) => Promise<T>,
    refused?: (decision: Decision) => R,
  ): Promise<T | R> {
    const decision = await this.#decide("/v1/acquire", question);
    if (!decision.allowed) return refused?.(decision) as R;
    const lost = new AbortController();
    if (!decision.lease) return work(lost.signal, decision);
    const { token, ttl_us } = decision.lease;
    const timer = setInterval(() => {
      this.#call("/v1/renew", { token }).catch((error) => {
        if (!(error instanceof Problem)) return; // the next try is within the time-to-live
        clearInterval(timer);
        lost.abort(error);
      });
    }, ttl_us / 3000);
    try {
      return await work(lost.signal, decision);
    } finally {
      clearInterval(timer);
      await this.#call("/v1/release", { token }).catch(() => {}); // it is gone, or expires after its time-to-live
    }
  }

  /** Deletes the counts and bans of the request's rules and of the claims. */
  async reset(question: { request?: Request; claims?: Claim[] }): Promise<void> {
    await this.#call("/v1/reset", question);
  }

  async #decide(path: string, body: object): Promise<Decision> {
    try {
      return { ...((await this.#call(path, body)) as unknown as Decision), answered: true };
    } catch (error) {
      if (!(error instanceof Unanswered) || this.#onFailure === "throw") throw error;
      return byPolicy(this.#onFailure);
    }
  }

  async #call(path: string, body: object): Promise<Record<string, unknown>> {
    const sent = JSON.stringify(body);
    if (sent.length > maxBody || new TextEncoder().encode(sent).length > maxBody) {
      // It is not sent: the connection might break, which looks like an outage.
      throw new Problem(413, { detail: `the body has over ${maxBody} bytes` });
    }
    let status: number;
    let answer: string;
    try {
      const response = await this.#fetch(this.#url + path, {
        method: "POST",
        headers: this.#headers,
        body: sent,
        signal: AbortSignal.timeout(this.#timeout),
        redirect: "error",
      });
      status = response.status;
      answer = await response.text();
    } catch (error) {
      throw new Unanswered(`weir does not answer: ${error}`, { cause: error });
    }
    return read(status, answer);
  }

  async #settle(body: object): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        await this.#call("/v1/settle", body);
        return;
      } catch (error) {
        // A conflict after a try without an answer says that this try did settle.
        if (error instanceof Problem && error.status === 409 && tries > 0) return;
        if (!(error instanceof Unanswered) || tries === settleTries - 1) throw error;
      }
    }
  }
}

/** Reads an answer, or throws Unanswered or Problem. */
function read(status: number, answer: string): Record<string, unknown> {
  let document: unknown;
  try {
    document = JSON.parse(answer);
  } catch (error) {
    throw new Unanswered(`the answer, with the status ${status}, is not JSON`, { cause: error });
  }
  if (typeof document !== "object" || document === null || Array.isArray(document)) {
    throw new Unanswered("the answer is not a JSON object");
  }
  const members = document as Record<string, unknown>;
  if (status >= 500 || (members["reason"] === "store_failed" && !members["allowed"])) {
    throw new Unanswered(text(members["detail"]) ?? `weir answers ${status}: its store does not answer`);
  }
  if (status >= 400) throw new Problem(status, members);
  return members;
}

function byPolicy(policy: "pass" | "refuse"): Decision {
  const allowed = policy === "pass";
  return {
    allowed,
    outcome: allowed ? "passed" : "failed",
    reason: "unanswered",
    granted: allowed ? 1 : 0,
    retry_after: allowed ? 0 : 1,
    checks: [],
    answered: false,
  };
}

/** An estimate that is charged. If it is not settled, it stays charged. */
export class Reserved {
  readonly #send: (body: object) => Promise<void>;

  /** Reservations are made by Weir.reserve. */
  constructor(readonly decision: Decision, send: (body: object) => Promise<void>) {
    this.#send = send;
  }

  get allowed(): boolean {
    return this.decision.allowed;
  }

  /**
   * States the actual cost, once; 0 cancels. status and json are those of the response, for rules that read them; json
   * may be a list of a stream's events. It does nothing if weir did not answer the reservation. It tries again if the
   * answer is lost, and throws Unanswered if the last try has no answer: then it may be called again with the same
   * cost.
   */
  async settle(outcome: { actual?: number; status?: number; json?: unknown }): Promise<void> {
    if (outcome.actual === undefined && outcome.status === undefined && outcome.json === undefined) {
      throw new RangeError("settle needs the actual cost, or the status or the JSON of the response");
    }
    const token = this.decision.reservation?.token;
    if (token) await this.#send({ token, ...outcome });
  }
}
