package org.weirproject.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Leases and whole responses, of the server of CasesTest. */
class HeldTest {
    private final Weir weir = Weir.at(System.getenv("WEIR_URL")).timeout(Duration.ofSeconds(10)).build();

    private static Question export(String user) {
        return Question.of(Request.of("GET", "/exports/1").withUser(user));
    }

    @Test
    void aLeaseIsRenewedAndReleased() {
        Question question = export("java");
        try (Held held = weir.hold(question)) {
            assertTrue(held.allowed());
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(3); // the lease has two seconds
            while (System.nanoTime() < end) {
                assertFalse(weir.peek(question).allowed());
            }
            assertFalse(held.lost());
            try (Held second = weir.hold(question)) {
                assertFalse(second.allowed());
            }
        }
        assertTrue(weir.peek(question).allowed());
    }

    @Test
    void aLeaseThatIsGoneIsNoticed() throws InterruptedException {
        Question question = export("java-gone");
        try (Held held = weir.hold(question)) {
            weir.reset(question);
            assertTrue(held.awaitLost(30, TimeUnit.SECONDS));
        }
    }

    @Test
    void theWholeResponse() {
        Question question = Question.of(Request.of("POST", "/login").withClient("198.51.100.77"));
        Decision passed = weir.decideForHttp(question.withCost(2));
        assertNotNull(passed.response().headers().get("Ratelimit-Policy"));
        Decision refused = weir.decideForHttp(question);
        assertEquals(429, refused.response().status());
        assertEquals(Long.toString(refused.retryAfter()), refused.response().headers().get("Retry-After"));
        assertEquals("login", refused.checks().get(0).rule());
    }
}
