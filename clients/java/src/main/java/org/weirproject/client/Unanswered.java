package org.weirproject.client;

/** weir, or its store, did not answer. Whether units were charged is unknown. */
public final class Unanswered extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unanswered(String message, Throwable cause) {
        super(message, cause);
    }
}
