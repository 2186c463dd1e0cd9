package org.weirproject.client;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;

/**
 * What weir decided. Parts that the server leaves out are null or 0.
 *
 * @param outcome passed, refused, denied or failed
 * @param granted how many repetitions are granted
 * @param remaining units that are left of the tightest limit
 * @param retryAfter whole seconds, rounded up; 0: now, -1: never
 * @param delayMicros how long to wait before the work of a request that passed, in microseconds
 * @param unanswered whether weir or its store did not answer, and the policy of the client decided
 */
public record Decision(
        boolean allowed,
        String outcome,
        String reason,
        long granted,
        String rule,
        String name,
        String limit,
        Long remaining,
        @JsonProperty("retry_after") long retryAfter,
        @JsonProperty("delay_us") long delayMicros,
        String message,
        boolean repeated,
        boolean degraded,
        List<Check> checks,
        Response response,
        Lease reservation,
        Lease lease,
        boolean unanswered) {

    /** The state of one limit after the decision. Times are microseconds; retryAfterMicros is -1 if no wait helps. */
    public record Check(
            String name,
            String limit,
            String rule,
            long cost,
            long remaining,
            @JsonProperty("retry_after_us") long retryAfterMicros,
            @JsonProperty("reset_after_us") long resetAfterMicros) {
    }

    /** What to send to the client of the request, if the decision was asked with decideForHttp. */
    public record Response(int status, Map<String, String> headers, String body) {
    }

    /** The token of a reservation or of held units, and how long it lives, in microseconds. */
    public record Lease(String token, @JsonProperty("ttl_us") long ttlMicros) {
    }

    public Decision {
        checks = checks == null ? List.of() : List.copyOf(checks);
    }

    static Decision unanswered(boolean allowed) {
        String outcome = allowed ? "passed" : "failed";
        return new Decision(allowed, outcome, "unanswered", allowed ? 1 : 0, null, null, null, null, allowed ? 0 : 1, 0,
                null, false, false, null, null, null, null, true);
    }
}
