package org.weirproject.client;

import com.fasterxml.jackson.annotation.JsonInclude;

/**
 * A limit of the caller. Parts that are null are left out.
 *
 * @param name the name of the limit
 * @param limit such as "fixed_window 3/1h"
 * @param key what is counted, such as "user:42"
 * @param cost units, or null for the cost of the question
 * @param floor units that the claim leaves to others: it is granted only if its cost and the floor fit together
 * @param member the member of a fair limit, such as of "fair_fixed_window 100/1m above 50"
 * @param weight the weight of the member, 1 to 1000; 1 if null
 * @param fixed of a reservation: settle does not change the cost; null is false
 */
@JsonInclude(JsonInclude.Include.NON_NULL)
public record Claim(
        String name,
        String limit,
        String key,
        Long cost,
        Long floor,
        String member,
        Long weight,
        Boolean fixed) {

    public Claim(String name, String limit, String key) {
        this(name, limit, key, null, null, null, null, null);
    }

    public Claim withCost(long cost) {
        return new Claim(name, limit, key, cost, floor, member, weight, fixed);
    }

    public Claim withFloor(long floor) {
        return new Claim(name, limit, key, cost, floor, member, weight, fixed);
    }

    public Claim withMember(String member) {
        return new Claim(name, limit, key, cost, floor, member, weight, fixed);
    }

    public Claim withWeight(long weight) {
        return new Claim(name, limit, key, cost, floor, member, weight, fixed);
    }

    public Claim withFixed() {
        return new Claim(name, limit, key, cost, floor, member, weight, true);
    }
}
