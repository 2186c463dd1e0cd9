package org.weirproject.client;

import com.fasterxml.jackson.annotation.JsonInclude;
import java.util.List;

/**
 * What is decided: a request by the rules of the server, limits of the caller, or both. Parts that are null are left
 * out.
 *
 * @param cost units, for the rules and claims without a cost of their own; 1 if null
 * @param times of decide: the most repetitions that are granted
 * @param id of decide and reserve: a call with the same id is charged once
 * @param ttl of reserve: how long it can be settled, such as "10m"
 */
@JsonInclude(JsonInclude.Include.NON_NULL)
public record Question(Request request, List<Claim> claims, Long cost, Long times, String id, String ttl) {
    public static Question of(Request request) {
        return new Question(request, null, null, null, null, null);
    }

    public static Question of(Claim... claims) {
        return new Question(null, List.of(claims), null, null, null, null);
    }

    public Question withClaims(Claim... claims) {
        return new Question(request, List.of(claims), cost, times, id, ttl);
    }

    public Question withCost(long cost) {
        return new Question(request, claims, cost, times, id, ttl);
    }

    public Question withTimes(long times) {
        return new Question(request, claims, cost, times, id, ttl);
    }

    public Question withId(String id) {
        return new Question(request, claims, cost, times, id, ttl);
    }

    public Question withTtl(String ttl) {
        return new Question(request, claims, cost, times, id, ttl);
    }
}
