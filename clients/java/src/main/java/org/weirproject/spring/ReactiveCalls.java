package org.weirproject.spring;

import java.lang.reflect.Method;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.reactivestreams.Publisher;
import org.springframework.core.ReactiveAdapter;
import org.springframework.core.ReactiveAdapterRegistry;
import org.weirproject.client.Decision;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * Asks weir for methods that return a Mono, a Flux or another lazy publisher: at each subscription, and without
 * blocking its thread. A class of its own, since applications may lack Reactor.
 */
final class ReactiveCalls {
    private ReactiveCalls() {
    }

    /** A CompletableFuture runs when it is made, so its method is asked for like any other. */
    static boolean isReactive(Method method) {
        ReactiveAdapter adapter = adapterOf(method);
        return adapter != null && adapter.getDescriptor().isDeferred();
    }

    private static ReactiveAdapter adapterOf(Method method) {
        return ReactiveAdapterRegistry.getSharedInstance().getAdapter(method.getReturnType());
    }

    static Object ask(Method method, Supplier<CompletableFuture<Decision>> asked, RateLimitAspect.Outcome outcome) {
        ReactiveAdapter adapter = adapterOf(method);
        Mono<Decision> decision = Mono.fromFuture(asked);
        if (adapter.isMultiValue()) {
            return adapter.fromPublisher(decision.flatMapMany(it -> Flux.from(publisherOf(adapter, outcome, it))));
        }
        return adapter.fromPublisher(decision.flatMap(it -> Mono.from(publisherOf(adapter, outcome, it))));
    }

    private static Publisher<?> publisherOf(
            ReactiveAdapter adapter, RateLimitAspect.Outcome outcome, Decision decision) {
        try {
            return adapter.toPublisher(outcome.of(decision));
        } catch (Throwable error) {
            return Mono.error(error);
        }
    }
}
