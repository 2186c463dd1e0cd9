package org.weirproject.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.Collections;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.weirproject.client.FakeServer.Answer;

class FailuresTest {
    private static final Question QUESTION = Question.of(Request.of("GET", "/"));
    private static final Answer CUT = new Answer(0, "");
    private static final Answer WITHOUT_BODY = new Answer(-1, "");
    private static final Answer CONFLICT = new Answer(409, "{\"status\": 409, \"detail\": \"it is settled already\"}");
    private static final Answer SETTLED = new Answer(200, "{}");
    private static final Answer RESERVED = new Answer(200, "{\"allowed\": true, \"outcome\": \"passed\","
            + " \"reason\": \"within_limits\", \"granted\": 1, \"checks\": [], \"news\": 1,"
            + " \"reservation\": {\"token\": \"t\", \"ttl_us\": 1000000}}");

    static Stream<Answer> failures() {
        return Stream.of(
                CUT,
                WITHOUT_BODY,
                new Answer(503, "{\"allowed\": false, \"outcome\": \"failed\", \"reason\": \"store_failed\"}"),
                new Answer(200, "{\"allowed\": false, \"outcome\": \"failed\", \"reason\": \"store_failed\"}"),
                new Answer(200, "{\"allowed\": tr"),
                new Answer(200, "{\"allowed\": true, \"checks\": 3}"),
                new Answer(200, "{}"),
                new Answer(200, "[]"),
                new Answer(200, ""),
                new Answer(502, "<html>"));
    }

    private static Weir asks(FakeServer server, OnFailure onFailure) {
        return Weir.at(server.url()).timeout(Duration.ofSeconds(1)).onFailure(onFailure).build();
    }

    @ParameterizedTest
    @MethodSource("failures")
    void thePolicyDecides(Answer failure) throws IOException {
        // The JDK sends a request again if its connection is cut.
        try (FakeServer server = new FakeServer(Collections.nCopies(10, failure).toArray(Answer[]::new))) {
            Decision passed = asks(server, OnFailure.PASS).decide(QUESTION);
            assertTrue(passed.allowed() && passed.unanswered());
            Decision refused = asks(server, OnFailure.REFUSE).decide(QUESTION);
            assertFalse(refused.allowed());
            assertEquals(1, refused.retryAfter());
            assertThrows(Unanswered.class, () -> asks(server, OnFailure.THROW).decide(QUESTION));
            assertTrue(asks(server, OnFailure.PASS).decideAsync(QUESTION).join().unanswered());
            CompletableFuture<Decision> thrown = asks(server, OnFailure.THROW).decideAsync(QUESTION);
            assertTrue(assertThrows(ExecutionException.class, thrown::get).getCause() instanceof Unanswered);
        }
    }

    @Test
    void withoutAServerThePolicyDecides() throws IOException {
        FakeServer server = new FakeServer();
        server.close();
        Reserved reserved = asks(server, OnFailure.PASS).reserve(QUESTION.withCost(3));
        assertTrue(reserved.allowed() && reserved.decision().unanswered());
        reserved.settle(1); // nothing is to be settled
    }

    @Test
    void aMistakeIsNoFailure() throws IOException {
        try (FakeServer server = new FakeServer(new Answer(401, "{\"detail\": \"the token is unknown\"}"))) {
            Problem problem = assertThrows(Problem.class, () -> asks(server, OnFailure.PASS).decide(QUESTION));
            assertEquals("the token is unknown", problem.getMessage());
            assertEquals(401, problem.status());
        }
        try (FakeServer server = new FakeServer(new Answer(401, "{\"detail\": \"the token is unknown\"}"))) {
            CompletableFuture<Decision> thrown = asks(server, OnFailure.PASS).decideAsync(QUESTION);
            assertTrue(assertThrows(ExecutionException.class, thrown::get).getCause() instanceof Problem);
        }
    }

    @Test
    void aQuestionThatIsNoJsonFailsTheFuture() throws IOException {
        try (FakeServer server = new FakeServer()) {
            Question question = Question.of(Request.of("GET", "/").withJson(new Object()));
            assertThrows(IllegalArgumentException.class, () -> asks(server, OnFailure.PASS).decide(question));
            CompletableFuture<Decision> thrown = asks(server, OnFailure.PASS).decideAsync(question);
            assertTrue(
                    assertThrows(ExecutionException.class, thrown::get).getCause() instanceof IllegalArgumentException);
        }
    }

    /** Its connection might break: a user of a service could choose that the policy decides. */
    @Test
    void aCallThatIsTooLongIsNoFailure() throws IOException {
        try (FakeServer server = new FakeServer()) {
            Question question = Question.of(Request.of("GET", "/" + "x".repeat(1 << 20)));
            Problem problem = assertThrows(Problem.class, () -> asks(server, OnFailure.PASS).decide(question));
            assertEquals(413, problem.status());
            CompletableFuture<Decision> thrown = asks(server, OnFailure.PASS).decideAsync(question);
            assertTrue(assertThrows(ExecutionException.class, thrown::get).getCause() instanceof Problem);
        }
    }

    @Test
    void aSettlementWithoutAnAnswerIsTriedAgain() throws IOException {
        Answer down = new Answer(503, "{}");
        try (FakeServer server = new FakeServer(RESERVED, down, down, SETTLED)) {
            asks(server, OnFailure.PASS).reserve(QUESTION).settle(3);
            assertEquals(4, server.asked.size());
        }
        try (FakeServer server = new FakeServer(RESERVED, down, down, down)) {
            Reserved reserved = asks(server, OnFailure.PASS).reserve(QUESTION);
            assertThrows(Unanswered.class, () -> reserved.settleStatus(200));
        }
    }

    @Test
    void aConflictAfterALostAnswerIsSettled() throws IOException {
        try (FakeServer server = new FakeServer(RESERVED, WITHOUT_BODY, CONFLICT)) {
            asks(server, OnFailure.PASS).reserve(QUESTION).settle(3);
        }
        try (FakeServer server = new FakeServer(RESERVED, CONFLICT)) {
            Reserved reserved = asks(server, OnFailure.PASS).reserve(QUESTION);
            assertEquals(409, assertThrows(Problem.class, () -> reserved.settle(3)).status());
        }
    }

    @Test
    void optionsAreChecked() {
        assertThrows(IllegalArgumentException.class, () -> Weir.at("127.0.0.1:8080"));
        assertThrows(IllegalArgumentException.class, () -> Weir.at("http://127.0.0.1").timeout(Duration.ZERO));
    }
}
