package dejaqueue;

import java.util.List;
import java.util.Map;

/** A message to send, or one that was received. */
public final class Message {
    /** The priority of a message that has none of its own; 0 is most urgent. */
    public static final int DEFAULT_PRIORITY = 32_768;

    /** What it carries. */
    public byte[] payload = new byte[0];
    /** Not before this, UTC milliseconds; 0 = at once. */
    public long dueMs;
    /** The producer's own id; empty = none. */
    public String key = "";
    /** Empty = none. */
    public String group = "";
    /** 0 to 65,535. */
    public int priority = DEFAULT_PRIORITY;
    /** At most 16. */
    public List<String> tags = List.of();
    /** Carried untouched. */
    public Map<String, String> headers = Map.of();
    /** UTC milliseconds; 0 = never. */
    public long expiresMs;
    /** Given by the broker. */
    public long id;
    /** Deliveries so far. */
    public int attempts;

    Lease lease;

    /** What the rows of one delivery are under. */
    record Lease(int partition, long id, int rows, long endMs, int generation) {}

    /** An empty message. */
    public Message() {}

    /** A message that is due at this time; 0 = at once. */
    public Message(byte[] payload, long dueMs) {
        this.payload = payload;
        this.dueMs = dueMs;
    }
}
