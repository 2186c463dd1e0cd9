package org.weirproject.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.reactivestreams.Publisher;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.test.context.runner.ReactiveWebApplicationContextRunner;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.http.MediaType;
import org.springframework.http.server.reactive.HttpHandler;
import org.springframework.mock.http.server.reactive.MockServerHttpRequest;
import org.springframework.mock.http.server.reactive.MockServerHttpResponse;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.reactive.config.EnableWebFlux;
import org.springframework.web.server.adapter.WebHttpHandlerBuilder;
import org.weirproject.client.FakeServer;
import org.weirproject.client.FakeServer.Answer;
import org.weirproject.client.Problem;
import org.weirproject.client.Unanswered;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Methods that return publishers, and WebFlux. */
class ReactiveTest {
    private final ReactiveWebApplicationContextRunner runner = new ReactiveWebApplicationContextRunner()
            .withUserConfiguration(Application.class)
            .withPropertyValues("weir.timeout=10s", "weir.on-failure=throw");

    @RestController
    static class Streams {
        @RateLimit(name = "mono", key = "#user", limit = "fixed_window 2/1h")
        Mono<String> one(String user) {
            return Mono.just("one");
        }

        @RateLimit(name = "flux", key = "#user", limit = "fixed_window 1/1h", fallback = "none")
        Flux<String> many(String user) {
            return Flux.just("a", "b", "c");
        }

        Flux<String> none(String user, RateLimited refused) {
            return Flux.just("later " + (refused.retryAfter() > 0));
        }

        @RateLimit(name = "publisher", key = "#user", limit = "fixed_window 1/1h")
        Publisher<String> some(String user) {
            return Flux.just("a", "b");
        }

        @RateLimit(name = "future", key = "#user", limit = "fixed_window 1/1h")
        CompletableFuture<String> future(String user) {
            return CompletableFuture.completedFuture("done");
        }

        @RateLimit(name = "failing", key = "#user", limit = "fixed_window 1/1h")
        Mono<String> fails(String user) {
            throw new UnsupportedOperationException("disk");
        }

        @RateLimit(name = "unknown", key = "#user", limit = "no limit")
        Mono<String> wrong(String user) {
            return Mono.just("one");
        }

        @GetMapping("/streams")
        @RateLimit(name = "webflux", key = "#user", limit = "fixed_window 1/1h")
        Mono<String> web(@RequestParam("user") String user) {
            return Mono.just("streams of " + user);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @EnableWebFlux
    static class Application {
        @Bean
        Streams streams() {
            return new Streams();
        }
    }

    private void run(Consumer<ApplicationContext> test) {
        runner.withPropertyValues("weir.url=" + System.getenv("WEIR_URL")).run(test::accept);
    }

    @Test
    void eachSubscriptionIsACall() {
        run(context -> {
            Mono<String> one = context.getBean(Streams.class).one("ann");
            assertEquals("one", one.block());
            assertEquals("one", one.block());
            RateLimited refused = assertThrows(RateLimited.class, one::block);
            assertTrue(refused.retryAfter() > 0);
        });
    }

    @Test
    void aStreamIsWhole() {
        run(context -> {
            Streams streams = context.getBean(Streams.class);
            assertEquals(List.of("a", "b", "c"), streams.many("ann").collectList().block());
            assertEquals(List.of("later true"), streams.many("ann").collectList().block());
            assertEquals(List.of("a", "b"), Flux.from(streams.some("ann")).collectList().block());
            assertThrows(RateLimited.class, () -> Flux.from(streams.some("ann")).blockLast());
        });
    }

    @Test
    void aFutureIsAskedForWhenItIsMade() {
        run(context -> {
            Streams streams = context.getBean(Streams.class);
            assertEquals("done", streams.future("ann").join());
            assertThrows(RateLimited.class, () -> streams.future("ann"));
        });
    }

    @Test
    void aSubscriptionDoesNotBlock() throws IOException {
        try (FakeServer server = new FakeServer(new Answer(-1, ""))) { // the answer never comes
            runner.withPropertyValues("weir.url=" + server.url()).run(context -> {
                CompletableFuture<String> asked = context.getBean(Streams.class).one("ann").toFuture();
                assertFalse(asked.isDone());
                asked.cancel(true);
            });
        }
    }

    @Test
    void failuresAreSignals() throws IOException {
        run(context -> {
            Streams streams = context.getBean(Streams.class);
            assertThrows(UnsupportedOperationException.class, () -> streams.fails("ann").block());
            assertThrows(Problem.class, () -> streams.wrong("ann").block());
        });
        try (FakeServer server = new FakeServer(new Answer(503, "{}"), new Answer(503, "{}"))) {
            runner.withPropertyValues("weir.url=" + server.url()).run(context -> assertThrows(
                    Unanswered.class, () -> context.getBean(Streams.class).one("ann").block()));
            runner.withPropertyValues("weir.url=" + server.url(), "weir.on-failure=pass").run(context -> assertEquals(
                    "one", context.getBean(Streams.class).one("ann").block()));
        }
    }

    @Test
    void webFluxAnswersWithRetryAfter() {
        run(context -> {
            HttpHandler web = WebHttpHandlerBuilder.applicationContext(context).build();
            MockServerHttpResponse passed = ask(web);
            assertEquals("streams of ann", passed.getBodyAsString().block());
            MockServerHttpResponse refused = ask(web);
            assertEquals(429, refused.getStatusCode().value());
            assertTrue(Integer.parseInt(refused.getHeaders().getFirst("Retry-After")) > 0);
            assertEquals(MediaType.APPLICATION_PROBLEM_JSON, refused.getHeaders().getContentType());
        });
    }

    private static MockServerHttpResponse ask(HttpHandler web) {
        MockServerHttpResponse response = new MockServerHttpResponse();
        web.handle(MockServerHttpRequest.get("/streams?user=ann").build(), response).block();
        return response;
    }
}
