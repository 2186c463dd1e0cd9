package org.weirproject.client;

import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Units of concurrency limits, held until close. A daemon thread renews them each third of their time-to-live. */
public final class Held implements AutoCloseable {
    private final Weir weir;
    private final Decision decision;
    private final CountDownLatch lost = new CountDownLatch(1);
    private final CountDownLatch closed = new CountDownLatch(1);
    private final Thread renewal;

    Held(Weir weir, Decision decision) {
        this.weir = weir;
        this.decision = decision;
        this.renewal = new Thread(this::renew, "weir-renew");
        renewal.setDaemon(true);
        if (decision.lease() != null) {
            renewal.start();
        }
    }

    public Decision decision() {
        return decision;
    }

    public boolean allowed() {
        return decision.allowed();
    }

    /** Whether the units are gone, although they are not released. */
    public boolean lost() {
        return lost.getCount() == 0;
    }

    /** Waits until the units are gone, at most so long, and returns whether they are. */
    public boolean awaitLost(long timeout, TimeUnit unit) throws InterruptedException {
        return lost.await(timeout, unit);
    }

    /** Releases the units, once. If weir does not answer, they are released after their time-to-live. */
    @Override
    public synchronized void close() {
        if (decision.lease() == null || closed.getCount() == 0) {
            return;
        }
        closed.countDown();
        try {
            weir.call("/v1/release", token());
        } catch (Problem | Unanswered gone) {
            return; // the units are gone, or expire after their time-to-live
        }
    }

    private void renew() {
        try {
            while (!closed.await(decision.lease().ttlMicros() / 3, TimeUnit.MICROSECONDS)) {
                renewOnce();
            }
        } catch (Problem gone) {
            if (closed.getCount() > 0) {
                lost.countDown();
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private void renewOnce() {
        try {
            weir.call("/v1/renew", token());
        } catch (Unanswered failure) {
            return; // the next try is within the time-to-live
        }
    }

    private Map<String, String> token() {
        return Map.of("token", decision.lease().token());
    }
}
