package org.weirproject.client;

import java.util.HashMap;
import java.util.Map;

/** An estimate that is charged. If it is not settled, it stays charged. */
public final class Reserved {
    private final Weir weir;
    private final Decision decision;

    Reserved(Weir weir, Decision decision) {
        this.weir = weir;
        this.decision = decision;
    }

    public Decision decision() {
        return decision;
    }

    public boolean allowed() {
        return decision.allowed();
    }

    /**
     * States the actual cost, once; 0 cancels. It does nothing if there is no reservation: the request was refused, or
     * weir did not answer. It tries again if the answer is lost, and throws Unanswered if the last try has no answer:
     * then it may be called again with the same cost.
     */
    public void settle(long actual) {
        send(Map.of("actual", actual));
    }

    /** Settles by the status of the response, for rules with count_if. Failures are those of settle. */
    public void settleStatus(int status) {
        send(Map.of("status", status));
    }

    /**
     * Settles by the JSON of the response and its status, for rules that read the actual cost there. json is what
     * Jackson writes as JSON; it may be a list of a stream's events. Failures are those of settle.
     */
    public void settleJson(int status, Object json) {
        send(Map.of("status", status, "json", json));
    }

    private void send(Map<String, Object> outcome) {
        Decision.Lease reservation = decision.reservation();
        if (reservation != null) {
            Map<String, Object> document = new HashMap<>(outcome);
            document.put("token", reservation.token());
            weir.settle(document);
        }
    }
}
