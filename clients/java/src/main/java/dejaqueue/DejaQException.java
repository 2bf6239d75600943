package dejaqueue;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStatusCode;

/** What a broker answered, or Unavailable where none did. Decide by the number. */
public class DejaQException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private static final String MARK = "\ndejaq:";
    private static final Set<Integer> LATER = Set.of(30, 31, 32, 33);
    /** A broker lost a partition while it worked on a call. */
    private static final int FENCED = 40;

    static final int RESOURCE_EXHAUSTED = 31;
    static final int UNAVAILABLE = 32;
    /** Another broker of the cluster serves the topic. */
    static final int ELSEWHERE = 33;

    static final ObjectMapper JSON = new ObjectMapper();

    /** Stable; docs/reference/errors.md lists them. */
    public final int number;
    /** For people. */
    public final String name;
    /** A JSON object; empty if there are none. */
    public final transient JsonNode fields;

    private final boolean laterByStatus;

    DejaQException(int number, String name, String text, JsonNode fields, boolean laterByStatus) {
        super(text);
        this.number = number;
        this.name = name;
        this.fields = fields;
        this.laterByStatus = laterByStatus;
    }

    /** Whether the same call may succeed later without a change. */
    public boolean canRetry() {
        return LATER.contains(number) || laterByStatus;
    }

    /** How long the broker asks to wait, in milliseconds; 0 = it does not say. */
    public long retryAfterMs() {
        return fields.path("retry_after_ms").asLong(0);
    }

    static DejaQException unavailable(String text) {
        return new DejaQException(UNAVAILABLE, "Unavailable", text, JSON.createObjectNode(), true);
    }

    static DejaQException badRequest(String field, String limit, Object value) {
        var fields = JSON.createObjectNode().put("field", field).put("limit", limit);
        fields.put("value", String.valueOf(value));
        String text = field + ": " + limit + ", got: " + value;
        return new DejaQException(10, "BadRequest", text, fields, false);
    }

    /** The broker sent what the wire does not have. */
    static DejaQException broken(String text) {
        String told = "the broker did not send " + text;
        return new DejaQException(90, "InternalError", told, JSON.createObjectNode(), false);
    }

    /** The first JSON value of these bytes: gRPC may have written words of its own behind it. */
    static DejaQException ofJson(byte[] content, boolean laterByStatus) {
        try (JsonParser parser = JSON.getFactory().createParser(content)) {
            JsonNode found = JSON.readTree(parser);
            if (found != null && found.path("number").asInt(1) == FENCED) {
                // To a caller it is as if the broker went away: the next attempt finds the owner.
                return unavailable("another broker took the partition over; the outcome is unknown: "
                        + found.path("text").asText(""));
            }
            if (found != null && found.isObject()) {
                return new DejaQException(
                        found.path("number").asInt(1),
                        found.path("error").asText(""),
                        found.path("text").asText(""),
                        found.path("fields"),
                        laterByStatus);
            }
        } catch (IOException wrong) {
            // Told below.
        }
        return broken("an error as JSON");
    }

    /** One without the broker's line comes from the connection: the outcome is unknown. */
    static DejaQException of(Throwable wrong) {
        if (wrong instanceof DejaQException known) {
            return known;
        }
        String told = wrong.getMessage();
        boolean later = false;
        if (wrong instanceof FlightRuntimeException flight) {
            told = flight.status().description();
            FlightStatusCode code = flight.status().code();
            later = code == FlightStatusCode.UNAVAILABLE || code == FlightStatusCode.RESOURCE_EXHAUSTED;
        }
        int at = told == null ? -1 : told.indexOf(MARK);
        if (at >= 0) {
            byte[] content = told.substring(at + MARK.length()).getBytes(StandardCharsets.UTF_8);
            return ofJson(content, later);
        }
        return unavailable("the broker is out of reach: " + told);
    }
}
