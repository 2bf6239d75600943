package dejaqueue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** One message on its way by a lane, and whoever waits for it; and the SEND that has several. */
final class SendRow {
    private static final int TYPE = 9;
    private static final int HAS_DUES = 1;
    private static final int HAS_FIELDS = 2;
    private static final int KEY = 1;
    private static final int GROUP = 2;
    private static final int PRIORITY = 4;
    private static final int TAGS = 8;
    private static final int HEADERS = 16;
    private static final int EXPIRES = 32;
    /** Fields that are texts, in their order in a SEND. */
    private static final int[] TEXTS = {KEY, GROUP, TAGS, HEADERS};

    /** A copy: what is sent again by Flight is what was sent, whatever the caller does with his. */
    final Message message = new Message();
    final CompletableFuture<Client.Sent> answer = new CompletableFuture<>();
    final long deadlineNs;
    /** Payload and texts. */
    final int bytes;
    private final int fields;
    private final byte[][] texts;

    SendRow(Message sent, long deadlineNs) {
        this.deadlineNs = deadlineNs;
        message.payload = sent.payload;
        message.dueMs = sent.dueMs;
        message.key = sent.key;
        message.group = sent.group;
        message.priority = sent.priority;
        message.tags = new ArrayList<>(sent.tags);
        message.headers = new LinkedHashMap<>(sent.headers);
        message.expiresMs = sent.expiresMs;
        List<String> pairs = new ArrayList<>();
        message.headers.forEach((name, value) -> {
            pairs.add(name);
            pairs.add(value);
        });
        texts = new byte[][] {
            utf8(message.key), utf8(message.group), listed(message.tags), listed(pairs)
        };
        int found = message.priority == Message.DEFAULT_PRIORITY ? 0 : PRIORITY;
        found |= message.expiresMs == 0 ? 0 : EXPIRES;
        int size = message.payload.length;
        for (int at = 0; at < TEXTS.length; at++) {
            found |= texts[at].length == 0 ? 0 : TEXTS[at];
            size += texts[at].length;
        }
        fields = found;
        bytes = size;
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Texts one after the other, each behind its bytes. */
    private static byte[] listed(List<String> texts) {
        List<byte[]> parts = texts.stream().map(SendRow::utf8).toList();
        int size = parts.stream().mapToInt(part -> 4 + part.length).sum();
        ByteBuffer found = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
        parts.forEach(part -> found.putInt(part.length).put(part));
        return found.array();
    }

    /** Whether it has more than a payload and a due time. */
    boolean hasFields() {
        return fields != 0;
    }

    /** The end of an address, which is the same in all frames of a producer. */
    static byte[] namesOf(String producer, String topic) {
        byte[] from = utf8(producer);
        byte[] to = utf8(topic);
        return ByteBuffer.allocate(1 + from.length + to.length)
                .put((byte) from.length).put(from).put(to).array();
    }

    /**
     * A SEND without its length.
     *
     * @param number that its REPLY carries
     * @param own the producer's number of these rows
     * @param names as namesOf made them
     */
    static byte[] frameOf(int number, int own, byte[] names, List<SendRow> rows) {
        int count = rows.size();
        int which = 0;
        int size = 8 + 4 + names.length + 4 * count;
        for (SendRow row : rows) {
            which |= row.fields;
            size += row.bytes;
        }
        size += 8 * count + (which == 0 ? 0 : 4);
        size += (which & EXPIRES) == 0 ? 0 : 8 * count;
        size += (which & PRIORITY) == 0 ? 0 : 2 * count;
        size += 4 * count * Integer.bitCount(which & ~(EXPIRES | PRIORITY));
        ByteBuffer frame = Frames.head(TYPE, number, size);
        frame.putShort(2, (short) (HAS_DUES | (which == 0 ? 0 : HAS_FIELDS)));
        frame.putInt(count).putInt(4 + names.length).putInt(own).put(names);
        // Always, as by Flight: brokers keep a 0, and it is delivered before what has a time.
        rows.forEach(row -> frame.putLong(row.message.dueMs));
        if (which != 0) {
            putHeads(frame.putInt(which), which, rows);
        }
        rows.forEach(row -> frame.putInt(row.message.payload.length));
        for (int at = 0; at < TEXTS.length && which != 0; at++) {
            for (SendRow row : rows) {
                frame.put(row.texts[at]);
            }
        }
        rows.forEach(row -> frame.put(row.message.payload));
        return frame.array();
    }

    private static void putHeads(ByteBuffer frame, int which, List<SendRow> rows) {
        if ((which & EXPIRES) != 0) {
            rows.forEach(row -> frame.putLong(row.message.expiresMs));
        }
        if ((which & PRIORITY) != 0) {
            rows.forEach(row -> frame.putShort((short) row.message.priority));
        }
        for (int at = 0; at < TEXTS.length; at++) {
            if ((which & TEXTS[at]) != 0) {
                for (SendRow row : rows) {
                    frame.putInt(row.texts[at].length);
                }
            }
        }
    }
}
