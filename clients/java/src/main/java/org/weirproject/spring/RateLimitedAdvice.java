package org.weirproject.spring;

import org.springframework.core.Ordered;
import org.springframework.core.annotation.Order;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;

/** Answers {@link RateLimited} with 429 and Retry-After. An application's own handler of it is asked first. */
@RestControllerAdvice
@Order(Ordered.LOWEST_PRECEDENCE - 1)
public final class RateLimitedAdvice {
    @ExceptionHandler
    ResponseEntity<ProblemDetail> answer(RateLimited refused) {
        // HttpHeaders is a map in Spring 6 and none in Spring 7, so no method may be called that takes it as one.
        ResponseEntity.BodyBuilder answer = ResponseEntity.status(HttpStatus.TOO_MANY_REQUESTS);
        if (refused.retryAfter() > 0) {
            answer.header(HttpHeaders.RETRY_AFTER, Long.toString(refused.retryAfter()));
        }
        return answer.body(ProblemDetail.forStatusAndDetail(HttpStatus.TOO_MANY_REQUESTS, refused.getMessage()));
    }
}
