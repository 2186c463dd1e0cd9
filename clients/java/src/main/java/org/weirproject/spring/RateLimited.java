package org.weirproject.spring;

import org.weirproject.client.Decision;

/** weir refused the call of a method with {@link RateLimit}. */
public final class RateLimited extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final transient Decision decision;
    private final long retryAfter;

    RateLimited(String name, Decision decision) {
        super(decision.message() != null ? decision.message() : name + " is over its limit");
        this.decision = decision;
        this.retryAfter = decision.retryAfter();
    }

    /** Whole seconds, rounded up, after which a call may pass; -1: never. */
    public long retryAfter() {
        return retryAfter;
    }

    /** The decision; null in a copy that was serialized. */
    public Decision decision() {
        return decision;
    }
}
