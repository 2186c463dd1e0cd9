package org.weirproject.spring;

import org.aspectj.lang.annotation.Aspect;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.RestControllerAdvice;
import org.weirproject.client.Weir;

/**
 * Makes the client, the aspect and, in a web application, the answer to refused requests. Without weir.url the
 * application does not start: its methods would have no limits, and nobody would see it.
 */
@AutoConfiguration
@ConditionalOnProperty(name = "weir.enabled", havingValue = "true", matchIfMissing = true)
@EnableConfigurationProperties(WeirProperties.class)
public class WeirAutoConfiguration {
    @Bean
    static RateLimitChecks rateLimitChecks() {
        return new RateLimitChecks();
    }

    /** A class of its own, since applications that use the client alone may lack the classes of AspectJ. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(Aspect.class)
    static class Aspects {
        @Bean
        @ConditionalOnMissingBean
        Weir weir(WeirProperties properties) {
            if (properties.url().isEmpty()) {
                throw new IllegalArgumentException("weir.url is missing; allowed: http://HOST or https://HOST,"
                        + " or weir.enabled=false, with which methods have no limits");
            }
            return Weir.at(properties.url())
                    .token(properties.token())
                    .timeout(properties.timeout())
                    .onFailure(properties.onFailure())
                    .build();
        }

        @Bean(RateLimitChecks.ASPECT)
        RateLimitAspect rateLimitAspect(Weir weir, BeanFactory beans) {
            return new RateLimitAspect(weir, beans);
        }
    }

    /** A class of its own, since applications without a web framework lack the classes that it names. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication
    @ConditionalOnClass(RestControllerAdvice.class)
    static class Web {
        @Bean
        @ConditionalOnMissingBean
        @ConditionalOnProperty(name = "weir.answer", havingValue = "true", matchIfMissing = true)
        RateLimitedAdvice rateLimitedAdvice() {
            return new RateLimitedAdvice();
        }
    }
}
