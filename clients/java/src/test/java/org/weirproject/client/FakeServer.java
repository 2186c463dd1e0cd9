package org.weirproject.client;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A server that answers so, one after the other. */
public final class FakeServer implements AutoCloseable {
    /** An answer; the status 0 cuts the connection, and the status -1 sends headers and no body. */
    public record Answer(int status, String body) {
    }

    /** The bodies that were sent. */
    public final Queue<String> asked = new ConcurrentLinkedQueue<>();

    private final Queue<Answer> answers;
    private final HttpServer server;
    private final ExecutorService threads = Executors.newCachedThreadPool();

    public FakeServer(Answer... answers) throws IOException {
        this.answers = new ConcurrentLinkedQueue<>(new ArrayDeque<>(List.of(answers)));
        this.server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(threads);
        server.createContext("/", this::answer);
        server.start();
    }

    public String url() {
        return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    private void answer(HttpExchange exchange) throws IOException {
        asked.add(new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8));
        Answer answer = answers.remove();
        if (answer.status() == -1) {
            exchange.sendResponseHeaders(200, 10);
            exchange.getResponseBody().flush();
            return; // the body never comes
        }
        if (answer.status() != 0) {
            byte[] body = answer.body().getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(answer.status(), body.length);
            exchange.getResponseBody().write(body);
        }
        exchange.close();
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }
}
