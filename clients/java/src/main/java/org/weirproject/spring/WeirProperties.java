package org.weirproject.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;
import org.weirproject.client.OnFailure;

/**
 * The properties of the client.
 *
 * @param url the address of the API of weir
 * @param token the bearer token of the API
 * @param timeout bounds each call
 * @param onFailure what is decided when weir does not answer: pass, refuse or throw
 */
@ConfigurationProperties("weir")
public record WeirProperties(
        @DefaultValue("") String url,
        @DefaultValue("") String token,
        @DefaultValue("250ms") Duration timeout,
        @DefaultValue("pass") OnFailure onFailure) {
}
