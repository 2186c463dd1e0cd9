package org.weirproject.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** WEIR_URL is a server with the rules of rules.yaml, and WEIR_CASES the file cases.json. */
class CasesTest {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Weir weir = Weir.at(System.getenv("WEIR_URL"))
            .timeout(Duration.ofSeconds(10))
            .onFailure(OnFailure.THROW)
            .build();

    @TestFactory
    Stream<DynamicTest> cases() throws IOException {
        JsonNode cases = JSON.readTree(Path.of(System.getenv("WEIR_CASES")).toFile());
        return StreamSupport.stream(cases.spliterator(), false)
                .map(c -> DynamicTest.dynamicTest(c.get("name").asText(), () -> runCase(c)));
    }

    private void runCase(JsonNode testCase) throws IOException {
        Reserved[] reserved = new Reserved[1];
        for (JsonNode step : testCase.get("steps")) {
            if (step.has("problem")) {
                Problem problem = assertThrows(Problem.class, () -> run(step, reserved));
                assertEquals(step.at("/problem/status").asInt(), problem.status());
                if (step.at("/problem").has("field")) {
                    assertEquals(step.at("/problem/field").asText(), problem.field());
                }
                continue;
            }
            Decision decision = run(step, reserved);
            for (Map.Entry<String, JsonNode> want : step.path("want").properties()) {
                assertEquals(want.getValue().asText(), shown(decision).path(want.getKey()).asText(), want.getKey());
            }
        }
    }

    private Decision run(JsonNode step, Reserved[] reserved) throws IOException {
        JsonNode send = step.path("send");
        String call = step.get("call").asText();
        if (call.equals("settle")) {
            settle(reserved[0], send);
            return null;
        }
        Question question = own(send);
        switch (call) {
            case "decide":
                return weir.decide(question);
            case "peek":
                return weir.peek(question);
            case "reserve":
                reserved[0] = weir.reserve(question);
                return reserved[0].decision();
            case "reset":
                weir.reset(question);
                return null;
            default:
                throw new IllegalArgumentException("call is " + call);
        }
    }

    private static void settle(Reserved reserved, JsonNode send) {
        if (send.has("json")) {
            reserved.settleJson(send.get("status").asInt(), send.get("json"));
        } else {
            reserved.settle(send.get("actual").asLong());
        }
    }

    /** The question with keys of its own: other tests ask the same server. */
    private static Question own(JsonNode send) throws IOException {
        JsonNode copy = send.deepCopy();
        for (JsonNode claim : copy.path("claims")) {
            ((ObjectNode) claim).put("key", "java-" + claim.get("key").asText());
        }
        if (copy.at("/request").has("client")) {
            ((ObjectNode) copy.get("request")).put("client", "203.0.113.99");
        }
        return JSON.treeToValue(copy, Question.class);
    }

    private static JsonNode shown(Decision decision) {
        return JSON.valueToTree(decision);
    }
}
