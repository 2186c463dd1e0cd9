package org.weirproject.client;

import com.fasterxml.jackson.databind.JsonNode;

/** weir does not take the call: a wrong value, a wrong token, or a lease that is gone. Nothing was charged. */
public final class Problem extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final int status;
    private final String field;
    private final String value;
    private final String allowed;

    Problem(int status, JsonNode document) {
        super(document.path("detail").asText("weir answers " + status));
        this.status = status;
        this.field = document.path("field").asText(null);
        this.value = document.path("value").asText(null);
        this.allowed = document.path("allowed").asText(null);
    }

    /** The status of the answer, 400 to 499. */
    public int status() {
        return status;
    }

    /** The member that is wrong, such as claims[0].limit; or null. */
    public String field() {
        return field;
    }

    /** The value that is wrong, or null. */
    public String value() {
        return value;
    }

    /** The values that are allowed, or null. */
    public String allowed() {
        return allowed;
    }
}
