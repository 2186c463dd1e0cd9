package org.weirproject.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.springframework.test.web.servlet.request.MockMvcRequestBuilders.get;
import static org.springframework.test.web.servlet.result.MockMvcResultMatchers.content;
import static org.springframework.test.web.servlet.result.MockMvcResultMatchers.header;
import static org.springframework.test.web.servlet.result.MockMvcResultMatchers.status;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.WebApplicationContextRunner;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.test.web.servlet.MockMvc;
import org.springframework.test.web.servlet.setup.MockMvcBuilders;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.context.WebApplicationContext;
import org.springframework.web.servlet.config.annotation.EnableWebMvc;
import org.weirproject.client.FakeServer;
import org.weirproject.client.FakeServer.Answer;
import org.weirproject.client.Unanswered;
import org.weirproject.client.Weir;

class RateLimitTest {
    private static final String URL = "weir.url=" + System.getenv("WEIR_URL");

    private final WebApplicationContextRunner runner = new WebApplicationContextRunner()
            .withUserConfiguration(Application.class)
            .withPropertyValues("weir.timeout=10s", "weir.on-failure=throw");

    public record User(String id) {
    }

    @RestController
    static class Mails {
        @RateLimit(key = "#user.id", limit = "fixed_window 2/1h")
        String send(User user) {
            return "sent";
        }

        @RateLimit(name = "words", key = "#user.id", limit = "fixed_window 5/1h", cost = 5, fallback = "later")
        String queue(User user, String text) {
            return text;
        }

        private String later(User user, String text, RateLimited refused) {
            return "later " + text + " " + (refused.retryAfter() > 0);
        }

        @RateLimit(name = "plain", key = "'all'", limit = "fixed_window 1/1h", fallback = "none")
        String plain() {
            return "some";
        }

        String none() {
            return "none";
        }

        @RateLimit(name = "orders.create", key = "#p0")
        void byRules(String tenant) {
        }

        @GetMapping("/mails")
        @RateLimit(name = "web", key = "#user", limit = "fixed_window 1/1h")
        String web(@RequestParam String user) {
            return "mails of " + user;
        }

        @RateLimit(key = "#user.id", limit = "fixed_window 2/1h")
        void fails(User user) throws IOException {
            throw new IOException("disk");
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @EnableWebMvc
    static class Application {
        @Bean
        Mails mails() {
            return new Mails();
        }
    }

    private void run(Consumer<ApplicationContext> test) {
        runner.withPropertyValues(URL).run(test::accept);
    }

    @Test
    void eachKeyHasItsLimit() {
        run(context -> {
            Mails mails = context.getBean(Mails.class);
            mails.send(new User("ann"));
            assertEquals("sent", mails.send(new User("ann")));
            RateLimited refused = assertThrows(RateLimited.class, () -> mails.send(new User("ann")));
            assertTrue(refused.retryAfter() > 0);
            assertEquals("Mails.send", refused.decision().name());
            assertEquals("sent", mails.send(new User("bob")));
        });
    }

    @Test
    void theFallbackAnswers() {
        run(context -> {
            Mails mails = context.getBean(Mails.class);
            assertEquals("hello", mails.queue(new User("ann"), "hello"));
            assertEquals("later hello true", mails.queue(new User("ann"), "hello"));
            assertEquals("some", mails.plain());
            assertEquals("none", mails.plain());
        });
    }

    @Test
    void theRulesOfTheServerDecide() {
        run(context -> {
            Mails mails = context.getBean(Mails.class);
            mails.byRules("java");
            RateLimited refused = assertThrows(RateLimited.class, () -> mails.byRules("java"));
            assertEquals("orders", refused.decision().rule());
            assertEquals("One order an hour.", refused.getMessage());
        });
    }

    @Test
    void aKeyIsNeeded() {
        run(context -> {
            Mails mails = context.getBean(Mails.class);
            assertThrows(IllegalArgumentException.class, () -> mails.send(new User(null)));
            assertThrows(IllegalArgumentException.class, () -> mails.send(new User("")));
        });
    }

    @Test
    void theMethodsOwnExceptionIsKept() {
        run(context -> assertThrows(IOException.class, () -> context.getBean(Mails.class).fails(new User("eve"))));
    }

    @Test
    void theWebAnswersWithRetryAfter() {
        run(context -> {
            MockMvc web = MockMvcBuilders.webAppContextSetup((WebApplicationContext) context).build();
            try {
                web.perform(get("/mails?user=ann"))
                        .andExpect(status().isOk())
                        .andExpect(content().string("mails of ann"));
                web.perform(get("/mails?user=ann"))
                        .andExpect(status().isTooManyRequests())
                        .andExpect(header().exists("Retry-After"))
                        .andExpect(content().contentType("application/problem+json"));
            } catch (Exception error) {
                throw new AssertionError(error);
            }
        });
    }

    @Test
    void thePropertiesAreRead() throws IOException {
        try (FakeServer server = new FakeServer(new Answer(503, "{}"))) {
            runner.withPropertyValues("weir.url=" + server.url()).run(context -> assertThrows(
                    Unanswered.class, () -> context.getBean(Mails.class).send(new User("ann"))));
        }
        runner.withPropertyValues(URL, "weir.answer=false")
                .run(context -> assertEquals(0, context.getBeansOfType(RateLimitedAdvice.class).size()));
        runner.withPropertyValues("weir.enabled=false")
                .run(context -> assertEquals(0, context.getBeansOfType(Weir.class).size()));
    }

    @Test
    void withoutAnAddressTheApplicationDoesNotStart() {
        runner.withPropertyValues("weir.url=").run(context -> {
            String message = messageOf(context.getStartupFailure());
            assertTrue(message.startsWith("weir.url is missing"), message);
        });
    }

    private static String messageOf(Throwable failure) {
        return failure.getCause() == null ? failure.getMessage() : messageOf(failure.getCause());
    }

    static class Unseen {
        @RateLimit(key = "'all'")
        private void wrong() {
        }
    }

    static class Last {
        @RateLimit(key = "'all'")
        final void wrong() {
        }
    }

    static class Unparsed {
        @RateLimit(key = "#user.")
        void wrong() {
        }
    }

    static class Keyless {
        @RateLimit(key = "")
        void wrong() {
        }
    }

    static class Negative {
        @RateLimit(key = "'all'", cost = -1)
        void wrong() {
        }
    }

    static class Fallen {
        @RateLimit(key = "'all'", fallback = "missing")
        void wrong() {
        }
    }

    static class OtherResult {
        @RateLimit(key = "'all'", fallback = "later")
        String wrong() {
            return "";
        }

        void later() {
        }
    }

    @Test
    void withAWrongAnnotationTheApplicationDoesNotStart() {
        Map<Class<?>, String> beans = Map.of(
                Unseen.class, "allowed: a method that is not private",
                Last.class, "allowed: a method that is not private",
                Unparsed.class, "allowed: an expression",
                Keyless.class, "allowed: an expression",
                Negative.class, "cost of @RateLimit",
                Fallen.class, "fallback of @RateLimit",
                OtherResult.class, "fallback of @RateLimit");
        beans.forEach((bean, message) -> runner.withPropertyValues(URL).withBean(bean).run(context -> {
            String failure = messageOf(context.getStartupFailure());
            assertTrue(failure.contains(message) && failure.contains(bean.getSimpleName()), failure);
        }));
    }

    @Test
    void withoutAspectsTheApplicationDoesNotStart() {
        for (WebApplicationContextRunner without : List.of(
                runner.withPropertyValues(URL, "spring.aop.auto=false"),
                runner.withPropertyValues(URL).withClassLoader(new FilteredClassLoader("org.aspectj")))) {
            without.run(context -> {
                String message = messageOf(context.getStartupFailure());
                assertTrue(message.contains("the application runs no aspects"), message);
            });
        }
        new WebApplicationContextRunner() // and no limits
                .withClassLoader(new FilteredClassLoader("org.aspectj"))
                .withConfiguration(AutoConfigurations.of(WeirAutoConfiguration.class))
                .run(context -> assertNull(context.getStartupFailure()));
    }
}
