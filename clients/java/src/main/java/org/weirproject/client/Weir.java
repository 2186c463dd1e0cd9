package org.weirproject.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

/**
 * A client of a weir server. One is enough for a program: all threads may use it.
 *
 * <p>A call that weir does not take throws {@link Problem}, with each policy: it is a mistake of the caller, and no
 * failure.
 */
public final class Weir {
    private static final int SETTLE_TRIES = 3;
    /** The largest body of a call, in bytes. */
    private static final int MAX_BODY = 1 << 20;
    private static final ObjectMapper JSON = JsonMapper.builder()
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES) // a newer server may have more members
            .build();

    private final HttpClient http;
    private final String url;
    private final String token;
    private final Duration timeout;
    private final OnFailure onFailure;

    private Weir(Builder options) {
        this.http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        this.url = options.url;
        this.token = options.token;
        this.timeout = options.timeout;
        this.onFailure = options.onFailure;
    }

    /** Starts the options of a client. url is the address of the API, such as http://127.0.0.1:8080. */
    public static Builder at(String url) {
        return new Builder(url);
    }

    /** The options of a client. */
    public static final class Builder {
        private final String url;
        private String token = "";
        private Duration timeout = Duration.ofMillis(250);
        private OnFailure onFailure = OnFailure.PASS;

        private Builder(String url) {
            String scheme = URI.create(url).getScheme();
            if (!"http".equals(scheme) && !"https".equals(scheme)) {
                throw new IllegalArgumentException("url is " + url + "; allowed: http://HOST or https://HOST");
            }
            this.url = url.replaceAll("/+$", "");
        }

        /** The bearer token of the API; without it none is sent. */
        public Builder token(String token) {
            this.token = Objects.requireNonNull(token, "token");
            return this;
        }

        /** Bounds each call, with its connection and its answer; by default 250 ms. */
        public Builder timeout(Duration timeout) {
            if (timeout.isNegative() || timeout.isZero()) {
                throw new IllegalArgumentException("timeout is " + timeout + "; allowed: more than 0");
            }
            this.timeout = timeout;
            return this;
        }

        /** What is decided when weir does not answer; by default PASS. */
        public Builder onFailure(OnFailure onFailure) {
            this.onFailure = Objects.requireNonNull(onFailure, "onFailure");
            return this;
        }

        public Weir build() {
            return new Weir(this);
        }
    }

    /** Decides, and charges. */
    public Decision decide(Question question) {
        return decide("/v1/decide", question);
    }

    /**
     * Decides, and charges, without blocking a thread. The future completes with the exceptions that decide throws.
     * Cancelling it takes no charge back.
     */
    public CompletableFuture<Decision> decideAsync(Question question) {
        HttpRequest request;
        try {
            request = request("/v1/decide", question);
        } catch (Problem | IllegalArgumentException mistake) {
            return CompletableFuture.failedFuture(mistake);
        }
        CompletableFuture<HttpResponse<byte[]>> answer = http.sendAsync(request, BodyHandlers.ofByteArray());
        return answer.thenApply(Function.identity())
                .orTimeout(timeout.toNanos(), TimeUnit.NANOSECONDS)
                .handle((response, error) -> {
                    try {
                        if (error != null) {
                            answer.cancel(true);
                            throw unanswered(error);
                        }
                        return decisionOf(read(response));
                    } catch (Unanswered failure) {
                        return without(failure);
                    }
                });
    }

    /** Decides, and charges; the decision has the whole response to the client of the request. */
    public Decision decideForHttp(Question question) {
        return decide("/v1/decide?answer=http", question);
    }

    /** Decides without charging. */
    public Decision peek(Question question) {
        return decide("/v1/peek", question);
    }

    /** Charges an estimate, which settle corrects. */
    public Reserved reserve(Question question) {
        return new Reserved(this, decide("/v1/reserve", question));
    }

    /** Holds units of concurrency limits until close, for a try statement. The caller asks whether it is allowed. */
    public Held hold(Question question) {
        return new Held(this, decide("/v1/acquire", question));
    }

    /** Deletes the counts and bans of the request's rules and of the claims. */
    public void reset(Question question) {
        call("/v1/reset", question);
    }

    private Decision decide(String path, Question question) {
        try {
            return decisionOf(call(path, question));
        } catch (Unanswered failure) {
            return without(failure);
        }
    }

    private Decision without(Unanswered failure) {
        if (onFailure == OnFailure.THROW) {
            throw failure;
        }
        return Decision.unanswered(onFailure == OnFailure.PASS);
    }

    private static Decision decisionOf(JsonNode document) {
        if (!document.path("allowed").isBoolean()) {
            throw new Unanswered("the answer is not a decision", null);
        }
        try {
            return JSON.treeToValue(document, Decision.class);
        } catch (JsonProcessingException error) {
            throw new Unanswered("the answer is not a decision", error);
        }
    }

    void settle(Object body) {
        for (int tries = 1;; tries++) {
            try {
                call("/v1/settle", body);
                return;
            } catch (Unanswered failure) {
                if (tries == SETTLE_TRIES) {
                    throw failure;
                }
            } catch (Problem problem) {
                // A conflict after a try without an answer says that this try did settle.
                if (problem.status() == 409 && tries > 1) {
                    return;
                }
                throw problem;
            }
        }
    }

    JsonNode call(String path, Object body) {
        return read(send(request(path, body)));
    }

    private static JsonNode read(HttpResponse<byte[]> response) {
        JsonNode document = documentOf(response);
        boolean storeFailed = document.path("reason").asText().equals("store_failed");
        if (response.statusCode() >= 500 || storeFailed && !document.path("allowed").asBoolean()) {
            String without = "weir answers " + response.statusCode() + ": its store does not answer";
            throw new Unanswered(document.path("detail").asText(without), null);
        }
        if (response.statusCode() >= 400) {
            throw new Problem(response.statusCode(), document);
        }
        return document;
    }

    private HttpRequest request(String path, Object body) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + path))
                .header("Content-Type", "application/json");
        if (!token.isEmpty()) {
            request.header("Authorization", "Bearer " + token);
        }
        try {
            return request.POST(BodyPublishers.ofByteArray(shortEnough(JSON.writeValueAsBytes(body)))).build();
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("the question is not JSON", error);
        }
    }

    /** A body that is too long is not sent: the connection might break, which looks like an outage. */
    private static byte[] shortEnough(byte[] body) {
        if (body.length > MAX_BODY) {
            throw new Problem(413, JSON.createObjectNode().put("detail", "the body has over " + MAX_BODY + " bytes"));
        }
        return body;
    }

    /** The timeout of HttpRequest ends with the headers of the answer; this one bounds the body too. */
    private HttpResponse<byte[]> send(HttpRequest request) {
        CompletableFuture<HttpResponse<byte[]>> answer = http.sendAsync(request, BodyHandlers.ofByteArray());
        try {
            return answer.get(timeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException error) {
            throw unanswered(error);
        } catch (TimeoutException error) {
            answer.cancel(true);
            throw unanswered(error);
        } catch (InterruptedException error) {
            answer.cancel(true);
            Thread.currentThread().interrupt();
            throw new Unanswered("the thread was interrupted while weir was asked", error);
        }
    }

    private Unanswered unanswered(Throwable error) {
        if (error instanceof TimeoutException) {
            return new Unanswered("weir does not answer within " + timeout, error);
        }
        Throwable cause = error.getCause(); // the future wrapped it
        return new Unanswered("weir does not answer: " + cause, cause);
    }

    private static JsonNode documentOf(HttpResponse<byte[]> response) {
        try {
            JsonNode document = JSON.readTree(response.body());
            if (document.isObject()) {
                return document;
            }
        } catch (IOException error) {
            throw new Unanswered("the answer, with the status " + response.statusCode() + ", is not JSON", error);
        }
        throw new Unanswered("the answer is not a JSON object", null);
    }
}
