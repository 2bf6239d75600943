package dejaqueue;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Acks that nobody waits for: gathered while others are on their way, and sent again by (id, attempt) when
 * the connection broke before their answer. All of it under the lock of its consumer.
 */
final class AckPipe {
    /** How many acks may wait for their answer; then `ackAsync` waits. */
    static final int ACKS_MAX = 20_000;

    /** Of one SETTLE. */
    private static final int ROWS_MAX = 10_000;

    /** So many have a SETTLE go although another is on its way, of so many at most. */
    private static final int EARLY = 256;

    private static final int ON_WAY_MAX = 8;

    /** How near to the end of a lease it may have ended. */
    private static final long MARGIN_MS = 1_000;

    /** Sends a SETTLE of these rows; its number. */
    interface Send {
        int settle(long[] ids, int[] attempts);
    }

    private record Row(long id, int attempts, long endMs) {}

    /** Acks that have one answer. */
    private static final class Batch {
        final List<Row> rows;
        /** It was sent before: what came of that is not known. */
        boolean again;

        /** It is sent again, when the broker asks for it, from then on and until then; 0 = not yet sent. */
        long fromNs;
        long untilNs;

        Batch(List<Row> rows) {
            this.rows = rows;
        }
    }

    private final long retryNs;
    private final Deque<Row> gathered = new ArrayDeque<>();
    private final Deque<Batch> again = new ArrayDeque<>();
    private final Map<Integer, Batch> onWay = new HashMap<>();
    /** Of messages that have no answer. */
    private int count;
    /** The first one that was not told. */
    private DejaQException failure;

    AckPipe(long retryMs) {
        retryNs = retryMs * 1_000_000;
    }

    int count() {
        return count;
    }

    void add(List<Message> messages) {
        for (Message one : messages) {
            long endMs = one.lease == null ? 0 : one.lease.endMs();
            gathered.add(new Row(one.id, one.attempts, endMs));
        }
        count += messages.size();
    }

    /** What was gathered goes, if its turn has come. */
    void send(Send by) {
        while (onWay.size() < ON_WAY_MAX) {
            Batch next = next();
            if (next == null) {
                return;
            }
            if (next.untilNs == 0) {
                next.untilNs = System.nanoTime() + retryNs;
            }
            long[] ids = next.rows.stream().mapToLong(Row::id).toArray();
            int[] attempts = next.rows.stream().mapToInt(Row::attempts).toArray();
            onWay.put(by.settle(ids, attempts), next);
        }
    }

    private Batch next() {
        if (!again.isEmpty()) { // in their order, so that none is overtaken for ever
            return System.nanoTime() - again.peek().fromNs >= 0 ? again.poll() : null;
        }
        if (gathered.isEmpty() || (!onWay.isEmpty() && gathered.size() < EARLY)) {
            return null;
        }
        List<Row> rows = new ArrayList<>();
        while (!gathered.isEmpty() && rows.size() < ROWS_MAX) {
            rows.add(gathered.poll());
        }
        return new Batch(rows);
    }

    /** Acks have their answer; false if it answers none. */
    boolean answered(Frames.Reply reply, long brokerMs) {
        Batch batch = onWay.remove(reply.number());
        if (batch == null) {
            return false;
        }
        DejaQException wrong = reply.error();
        long now = System.nanoTime();
        if (wrong == null) {
            judge(batch, reply.statusesOf(batch.rows.size()), brokerMs);
        } else if (wrong.canRetry() && now - batch.untilNs < 0) {
            batch.again = true;
            long after = Math.max(FlightBatches.pauseMs(2), wrong.retryAfterMs());
            batch.fromNs = now + after * 1_000_000;
            again.add(batch);
            return true;
        } else {
            fail(wrong);
        }
        count -= batch.rows.size();
        return true;
    }

    private void judge(Batch batch, Status[] statuses, long brokerMs) {
        for (int row = 0; row < statuses.length; row++) {
            Row one = batch.rows.get(row);
            if (statuses[row] == Status.OK) {
                continue;
            }
            if (!batch.again) {
                String text = "the acked message " + one.id + " had lost its lease (" + statuses[row] + ")";
                fail(new DejaQException(20, "Refused", text, DejaQException.JSON.createObjectNode(), false));
            } else if (one.endMs <= brokerMs + MARGIN_MS) {
                fail(DejaQException.unavailable("the connection broke before the answer to the ack of message "
                        + one.id + ", and when it was sent again its lease was over (" + statuses[row]
                        + "): whether the first one was carried out is unknown"));
            } // Otherwise the lease cannot have ended by itself: the first one was carried out.
        }
    }

    /** What was not answered is sent again by the next stream. */
    void broke() {
        for (Batch batch : onWay.values()) {
            batch.again = true;
            batch.fromNs = System.nanoTime();
            again.addFirst(batch);
        }
        onWay.clear();
    }

    /** Nothing is answered any more. */
    void abandon(DejaQException why) {
        if (count > 0) {
            fail(why);
        }
        gathered.clear();
        again.clear();
        onWay.clear();
        count = 0;
    }

    void fail(DejaQException wrong) {
        failure = failure == null ? wrong : failure;
    }

    /** What went wrong and was not told; null if nothing did. */
    DejaQException told() {
        DejaQException found = failure;
        failure = null;
        return found;
    }
}
