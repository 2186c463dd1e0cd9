package org.weirproject.spring;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import org.springframework.aop.aspectj.autoproxy.AspectJAwareAdvisorAutoProxyCreator;
import org.springframework.aop.config.AopConfigUtils;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.BeanFactoryAware;
import org.springframework.beans.factory.config.BeanPostProcessor;
import org.springframework.core.KotlinDetector;
import org.springframework.core.MethodIntrospector;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.core.annotation.AnnotationUtils;
import org.springframework.expression.ParseException;

/**
 * Checks each {@link RateLimit} when its bean is made, so that an application whose methods would have no limits, or
 * fail at their first refusal, does not start.
 */
final class RateLimitChecks implements BeanPostProcessor, BeanFactoryAware {
    static final String ASPECT = "weirRateLimitAspect";

    private BeanFactory beans;

    @Override
    public void setBeanFactory(BeanFactory beans) {
        this.beans = beans;
    }

    @Override
    public Object postProcessBeforeInitialization(Object bean, String beanName) {
        Class<?> type = bean.getClass();
        if (AnnotationUtils.isCandidateClass(type, RateLimit.class)) {
            Map<Method, RateLimit> limits = MethodIntrospector.selectMethods(type,
                    (Method method) -> AnnotatedElementUtils.findMergedAnnotation(method, RateLimit.class));
            limits.forEach((method, rateLimit) -> check(type, method, rateLimit));
            if (!limits.isEmpty() && !hasAspects()) {
                throw new IllegalStateException("@RateLimit is on methods of " + type.getName()
                        + ", and the application runs no aspects; needed: spring-boot-starter-aspectj (Spring Boot 4)"
                        + " or spring-boot-starter-aop (3), and spring.aop.auto not false");
            }
        }
        return bean;
    }

    /** A creator of proxies alone is no evidence: without AspectJ, Spring has one for transactions. */
    private boolean hasAspects() {
        return beans.containsBean(ASPECT)
                && beans.containsBean(AopConfigUtils.AUTO_PROXY_CREATOR_BEAN_NAME)
                && beans.isTypeMatch(
                        AopConfigUtils.AUTO_PROXY_CREATOR_BEAN_NAME, AspectJAwareAdvisorAutoProxyCreator.class);
    }

    private static void check(Class<?> type, Method method, RateLimit rateLimit) {
        int modifiers = method.getModifiers();
        if (Modifier.isPrivate(modifiers) || Modifier.isStatic(modifiers) || Modifier.isFinal(modifiers)) {
            throw new IllegalStateException("@RateLimit is on " + method + ", whose calls Spring's proxies do not see;"
                    + " allowed: a method that is not private, static or final");
        }
        if (KotlinDetector.isSuspendingFunction(method)) {
            throw new IllegalStateException("@RateLimit is on " + method + ", a suspending function of Kotlin;"
                    + " allowed: a function that is none, which may return Mono, Flux or Flow");
        }
        if (rateLimit.cost() < 0) {
            throw new IllegalStateException("cost of @RateLimit on " + method + " is " + rateLimit.cost()
                    + "; allowed: 0 or more");
        }
        checkKey(method, rateLimit);
        if (!rateLimit.fallback().isEmpty()) {
            checkFallback(type, method, rateLimit);
        }
    }

    private static void checkKey(Method method, RateLimit rateLimit) {
        try {
            RateLimitAspect.PARSER.parseExpression(rateLimit.key());
        } catch (ParseException | IllegalArgumentException error) {
            throw new IllegalStateException("key of @RateLimit on " + method + " is " + rateLimit.key()
                    + "; allowed: an expression of Spring's language: " + error.getMessage());
        }
    }

    private static void checkFallback(Class<?> type, Method method, RateLimit rateLimit) {
        Method fallback = RateLimitAspect.findFallback(rateLimit.fallback(), type, method);
        Class<?> wanted = method.getReturnType();
        if (wanted != void.class && !wanted.isAssignableFrom(fallback.getReturnType())) {
            throw new IllegalStateException("fallback of @RateLimit on " + method + " returns "
                    + fallback.getReturnType().getName() + "; allowed: " + wanted.getName());
        }
    }
}
