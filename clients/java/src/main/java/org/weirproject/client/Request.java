package org.weirproject.client;

import com.fasterxml.jackson.annotation.JsonInclude;
import java.util.Map;

/** A request as rules match it. Parts that are null are missing. */
@JsonInclude(JsonInclude.Include.NON_NULL)
public record Request(
        String method,
        String host,
        String path,
        String route,
        String user,
        String service,
        String client,
        Map<String, String> headers,
        Map<String, String> query,
        Map<String, String> cookies,
        Map<String, String> descriptors,
        Object json) {

    /** A request of this method to this path; the with methods add what is known of it. */
    public static Request of(String method, String path) {
        return new Request(method, null, path, null, null, null, null, null, null, null, null, null);
    }

    /** A request without HTTP: the names and values that the descriptors of rules match. */
    public static Request of(Map<String, String> descriptors) {
        return new Request(null, null, null, null, null, null, null, null, null, null, descriptors, null);
    }

    public Request withHost(String host) {
        return new Request(
                method, host, path, route, user, service, client, headers, query, cookies, descriptors, json);
    }

    public Request withRoute(String route) {
        return new Request(
                method, host, path, route, user, service, client, headers, query, cookies, descriptors, json);
    }

    public Request withUser(String user) {
        return new Request(
                method, host, path, route, user, service, client, headers, query, cookies, descriptors, json);
    }

    public Request withService(String service) {
        return new Request(
                method, host, path, route, user, service, client, headers, query, cookies, descriptors, json);
    }

    /** client is the address of the client. */
    public Request withClient(String client) {
        return new Request(
                method, host, path, route, user, service, client, headers, query, cookies, descriptors, json);
    }

    public Request withHeaders(Map<String, String> headers) {
        return new Request(
                method, host, path, route, user, service, client, headers, query, cookies, descriptors, json);
    }

    public Request withQuery(Map<String, String> query) {
        return new Request(
                method, host, path, route, user, service, client, headers, query, cookies, descriptors, json);
    }

    public Request withCookies(Map<String, String> cookies) {
        return new Request(
                method, host, path, route, user, service, client, headers, query, cookies, descriptors, json);
    }

    public Request withDescriptors(Map<String, String> descriptors) {
        return new Request(
                method, host, path, route, user, service, client, headers, query, cookies, descriptors, json);
    }

    /** json is the body, for rules that read it: what Jackson writes as JSON, or NullNode if there is no body. */
    public Request withJson(Object json) {
        return new Request(
                method, host, path, route, user, service, client, headers, query, cookies, descriptors, json);
    }
}
