package org.weirproject.spring;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.aspectj.lang.ProceedingJoinPoint;
import org.aspectj.lang.annotation.Around;
import org.aspectj.lang.annotation.Aspect;
import org.aspectj.lang.reflect.MethodSignature;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.context.expression.BeanFactoryResolver;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.expression.Expression;
import org.springframework.expression.ExpressionParser;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.util.ClassUtils;
import org.springframework.util.ReflectionUtils;
import org.weirproject.client.Claim;
import org.weirproject.client.Decision;
import org.weirproject.client.Question;
import org.weirproject.client.Request;
import org.weirproject.client.Weir;

/** Asks weir before the methods with {@link RateLimit}. */
@Aspect
public final class RateLimitAspect {
    static final ExpressionParser PARSER = new SpelExpressionParser();
    private static final ParameterNameDiscoverer NAMES = new DefaultParameterNameDiscoverer();

    private static final boolean REACTIVE =
            ClassUtils.isPresent("reactor.core.publisher.Flux", RateLimitAspect.class.getClassLoader());

    private final Weir weir;
    private final BeanFactory beans;
    private final Map<String, Expression> expressions = new ConcurrentHashMap<>();

    RateLimitAspect(Weir weir, BeanFactory beans) {
        this.weir = weir;
        this.beans = beans;
    }

    @Around("@annotation(rateLimit)")
    Object ask(ProceedingJoinPoint call, RateLimit rateLimit) throws Throwable {
        Object target = call.getTarget();
        Method method = AopUtils.getMostSpecificMethod(
                ((MethodSignature) call.getSignature()).getMethod(), target.getClass());
        String name = nameOf(rateLimit, method);
        String key = keyOf(rateLimit, target, method, call.getArgs());
        Question question = questionOf(rateLimit, name, key);
        Outcome outcome = decision -> {
            if (decision.allowed()) {
                return call.proceed();
            }
            RateLimited refused = new RateLimited(name, decision);
            if (rateLimit.fallback().isEmpty()) {
                throw refused;
            }
            return callFallback(rateLimit.fallback(), target, method, call.getArgs(), refused);
        };
        if (REACTIVE && ReactiveCalls.isReactive(method)) {
            return ReactiveCalls.ask(method, () -> weir.decideAsync(question), outcome);
        }
        return outcome.of(weir.decide(question));
    }

    /** What a call gives after a decision. */
    interface Outcome {
        Object of(Decision decision) throws Throwable;
    }

    private static String nameOf(RateLimit rateLimit, Method method) {
        if (!rateLimit.name().isEmpty()) {
            return rateLimit.name();
        }
        return method.getDeclaringClass().getSimpleName() + "." + method.getName();
    }

    private String keyOf(RateLimit rateLimit, Object target, Method method, Object[] arguments) {
        MethodBasedEvaluationContext context = new MethodBasedEvaluationContext(target, method, arguments, NAMES);
        context.setBeanResolver(new BeanFactoryResolver(beans));
        Expression expression = expressions.computeIfAbsent(rateLimit.key(), PARSER::parseExpression);
        Object key = expression.getValue(context);
        if (key == null || key.toString().isEmpty()) {
            throw new IllegalArgumentException("key of @RateLimit on " + method + " is " + rateLimit.key()
                    + ", which gives no value; allowed: an expression that gives one");
        }
        return key.toString();
    }

    private static Question questionOf(RateLimit rateLimit, String name, String key) {
        if (rateLimit.limit().isEmpty()) {
            Request request = Request.of(Map.of("method", name, "key", key));
            return Question.of(request).withCost(rateLimit.cost());
        }
        return Question.of(new Claim(name, rateLimit.limit(), key)).withCost(rateLimit.cost());
    }

    private static Object callFallback(
            String name, Object target, Method method, Object[] arguments, RateLimited refused) throws Throwable {
        Method fallback = findFallback(name, target.getClass(), method);
        int given = fallback.getParameterCount();
        if (given > arguments.length) {
            arguments = Arrays.copyOf(arguments, given);
            arguments[given - 1] = refused;
        }
        fallback.setAccessible(true);
        try {
            return fallback.invoke(target, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    static Method findFallback(String name, Class<?> type, Method method) {
        Class<?>[] types = method.getParameterTypes();
        Method fallback = ReflectionUtils.findMethod(type, name, types);
        if (fallback == null) {
            types = Arrays.copyOf(types, types.length + 1);
            types[types.length - 1] = RateLimited.class;
            fallback = ReflectionUtils.findMethod(type, name, types);
        }
        if (fallback == null) {
            throw new IllegalStateException("fallback of @RateLimit on " + method + " is " + name
                    + "; allowed: a method of the same class with the same parameters, and perhaps RateLimited");
        }
        return fallback;
    }
}
