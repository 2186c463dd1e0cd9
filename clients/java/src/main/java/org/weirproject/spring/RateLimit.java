package org.weirproject.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Asks weir before each call of the method of a bean; a call that is refused throws {@link RateLimited}, or calls the
 * fallback method. Calls of a method from within its own bean are not seen: Spring's proxies do not see them.
 *
 * <p>With {@link #limit} the limit is stated here. Without it the rules of the server decide, by the descriptors
 * {@code method} (the name below) and {@code key}.
 */
@Documented
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
public @interface RateLimit {
    /** The name of the limit; by default Class.method. */
    String name() default "";

    /**
     * What is counted, in Spring's expression language: parameters as #user.id or #p0, beans as @name. A key that is
     * null or empty throws IllegalArgumentException: callers without a key must not share one count.
     */
    String key();

    /** A limit such as "fixed_window 3/1h"; without it the rules of the server decide. */
    String limit() default "";

    /** Units of one call. */
    long cost() default 1;

    /**
     * The name of a method of the same class that is called in place of a refused one, and returns what it returns. It
     * has the same parameters, or these and a {@link RateLimited} at the end.
     */
    String fallback() default "";
}
