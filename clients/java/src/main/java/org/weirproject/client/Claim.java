package org.weirproject.client;

import com.fasterxml.jackson.annotation.JsonInclude;

/**
 * A limit of the caller.
 *
 * @param name the name of the limit
 * @param limit such as "fixed_window 3/1h"
 * @param key what is counted, such as "user:42"
 * @param cost units, or null for the cost of the question
 * @param fixed of a reservation: settle does not change the cost; null is false
 */
@JsonInclude(JsonInclude.Include.NON_NULL)
public record Claim(String name, String limit, String key, Long cost, Boolean fixed) {
    public Claim(String name, String limit, String key) {
        this(name, limit, key, null, null);
    }
}
