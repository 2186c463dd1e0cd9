package org.weirproject.client;

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
        send("actual", actual);
    }

    /** Settles by the status of the response, for rules with count_if. Failures are those of settle. */
    public void settleStatus(int status) {
        send("status", status);
    }

    private void send(String member, Number value) {
        Decision.Lease reservation = decision.reservation();
        if (reservation != null) {
            weir.settle(Map.of("token", reservation.token(), member, value));
        }
    }
}
