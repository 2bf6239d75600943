package dejaqueue;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Receives messages of one topic, each when it is due by the broker's clock, never before. When the
 * connection breaks it opens another one; what is at hand stays, until its lease ends.
 */
public final class Consumer implements AutoCloseable {
    /**
     * Who consumes, and how.
     *
     * @param name for logs and stats
     * @param leaseMs of its deliveries; 0 = the topic's
     * @param credit how many messages may be at hand that are not settled; 0 = 1,000
     * @param tagsAny only messages with any of these; empty = all
     */
    public record Options(String name, long leaseMs, int credit, List<String> tagsAny) {
        /** The topic's lease, 1,000 messages, all of them. */
        public Options() {
            this("", 0, 0, List.of());
        }
    }

    /**
     * How messages are given back.
     *
     * @param delayMs from now; -1 = as the topic's backoff says
     * @param reason why, for the dead letter
     * @param dead they die now, however often they were delivered
     */
    public record Refusal(long delayMs, String reason, boolean dead) {}

    private record Handed(long id, int attempts) {}

    private record Held(Message message, long releaseUs, long arrival) {}

    final String topic;
    private final Client client;
    private final ObjectNode command;
    private final int credit;
    private final Thread thread;
    // Guarded by `this`.
    private final PriorityQueue<Held> held =
            new PriorityQueue<>(Comparator.comparingLong(Held::releaseUs).thenComparingLong(Held::arrival));
    private final Map<Handed, Message.Lease> atHand = new HashMap<>();
    private final Map<Integer, CompletableFuture<Frames.Reply>> waiting = new HashMap<>();
    private final Map<Integer, Long> pings = new HashMap<>();
    private ClockOffset offset = new ClockOffset();
    private ConsumeStream stream;
    private long arrivals;
    private int generation;
    private int number;
    private DejaQException refused;
    private boolean closed;

    /** Until then it goes by Flight, after what a lane did not do. Of the thread that opens streams. */
    private long byFlightUntilNs = System.nanoTime();

    /** Whose stream was opened last. Of the same thread. */
    private Client.Broker asked;

    Consumer(Client client, String topic, Options options) {
        this.client = client;
        this.topic = topic;
        asked = client.broker();
        credit = options.credit <= 0 ? 1_000 : options.credit;
        command = DejaQException.JSON.createObjectNode().put("topic", topic);
        command.put("consumer", options.name).put("lease_ms", options.leaseMs);
        ArrayNode tags = command.putArray("tags_any");
        options.tagsAny.forEach(tags::add);
        thread = new Thread(this::run, "dejaq-consumer");
        thread.setDaemon(true);
        thread.start();
    }

    /** Opens streams until the consumer is closed or refused. */
    private void run() {
        for (int failures = 0; ; failures++) {
            boolean[] delivered = {false};
            DejaQException wrong = serve(delivered);
            synchronized (this) {
                stream = null;
                waiting.values().forEach(one -> one.completeExceptionally(DejaQException.unavailable(
                        "the connection broke; whether the messages are settled is unknown")));
                waiting.clear();
                refused = closed || wrong.canRetry() ? null : wrong;
                notifyAll();
                if (closed || refused != null) {
                    return;
                }
            }
            failures = delivered[0] ? 0 : failures;
            try {
                Thread.sleep(Math.max(FlightBatches.pauseMs(failures), Math.min(wrong.retryAfterMs(), 1_000)));
            } catch (InterruptedException over) {
                return;
            }
        }
    }

    /** By a lane where there is one, else by Flight. May wait for the broker. */
    private ConsumeStream open() {
        boolean byLane = System.nanoTime() - byFlightUntilNs >= 0;
        Lanes.Opened lane = byLane ? client.lanes.forConsuming() : null;
        if (lane != null) {
            asked = lane.broker();
            try {
                return LaneConsumeStream.open(lane.socket(), client, command);
            } catch (IOException | RuntimeException wrong) {
                if (wrong instanceof DejaQException refused && isToBeRetried(refused)) {
                    throw refused;
                }
                leaveLanes(); // Flight passes it on, or says what is wrong
            }
        }
        asked = client.broker();
        return new FlightConsumeStream(client, asked, command);
    }

    private static boolean isToBeRetried(DejaQException wrong) {
        return wrong.canRetry() && wrong.number != DejaQException.ELSEWHERE;
    }

    private synchronized boolean isClosed() {
        return closed;
    }

    private void leaveLanes() {
        byFlightUntilNs = System.nanoTime() + Lanes.FLIGHT_NS;
    }

    /** One stream, from its opening to its end; why it ended. */
    private DejaQException serve(boolean[] delivered) {
        DejaQException told = DejaQException.unavailable("the broker ended the stream");
        Thread pinging = new Thread(this::ping, "dejaq-ping");
        ConsumeStream opened = null;
        try {
            opened = open();
            synchronized (this) {
                if (closed) {
                    return told;
                }
                generation++;
                offset = new ClockOffset(); // the broker may be another one
                pings.clear();
                stream = opened;
                say(Frames.credit(Math.max(credit - held.size() - atHand.size(), 0)));
                notifyAll();
            }
            opened.flush();
            pinging.setDaemon(true);
            pinging.start();
            while (true) {
                ConsumeStream.Arrival arrival = opened.next();
                if (arrival == null || arrival.frame() instanceof Frames.Ended) {
                    break;
                }
                delivered[0] = true;
                if (arrival.frame() instanceof Frames.Failed failed) {
                    told = failed.error();
                } else if (arrival.frame() instanceof Frames.Delivery head) {
                    delivered(head, arrival.rows());
                } else {
                    heard(arrival.frame());
                }
            }
        } catch (IOException | RuntimeException wrong) {
            DejaQException error = DejaQException.of(wrong);
            told = told.getMessage().startsWith("the broker ended") ? error : told;
        } finally {
            pinging.interrupt();
            synchronized (this) {
                stream = null;
            }
            if (opened != null) {
                opened.end();
            }
        }
        client.leave(asked, told);
        if (opened == null || !opened.isLane()) {
            return told;
        }
        if (delivered[0]) {
            client.lanes.worked();
        } else if (!isClosed()) {
            client.lanes.failed();
        }
        if (isToBeRetried(told)) {
            return told;
        }
        leaveLanes(); // Flight says what is wrong, if it is more than the lane
        return DejaQException.unavailable("the lane ended: " + told.getMessage());
    }

    /** Under the lock; `flush` it without. That it failed is told by the end of the stream. */
    private void say(byte[] frame) {
        if (stream != null && !stream.say(frame)) {
            stream = null;
        }
    }

    /** Not under the lock: the thread that reads needs it, and the broker may wait for that. */
    private void flush() {
        ConsumeStream current;
        synchronized (this) {
            current = stream;
        }
        if (current != null) {
            current.flush();
        }
    }

    private synchronized void delivered(Frames.Delivery head, List<Message> rows) {
        var lease = new Message.Lease(
                head.partition(), head.leaseId(), rows.size(), head.leaseEndMs(), generation);
        offset.reachedUs = Math.max(offset.reachedUs, head.brokerUs());
        long release = head.brokerUs(); // what was due when it was sent keeps the broker's order
        for (Message message : rows) {
            message.lease = lease;
            release = Math.max(release, message.dueMs * 1_000);
            held.add(new Held(message, release, arrivals++));
        }
        notifyAll();
    }

    private synchronized void heard(Frames.Frame frame) {
        if (frame instanceof Frames.Pong pong) {
            Long sent = pings.remove(pong.number());
            if (sent != null) {
                offset.addPong(sent, ClockOffset.nowUs(), pong.brokerUs());
                notifyAll();
            }
        } else if (frame instanceof Frames.Reply reply) {
            CompletableFuture<Frames.Reply> answer = waiting.remove(reply.number());
            if (answer != null) {
                answer.complete(reply);
            }
        }
    }

    /** Measures the broker's clock: often at first, then once a second. */
    private void ping() {
        try {
            for (int count = 1; ; count++) {
                synchronized (this) {
                    long now = ClockOffset.nowUs();
                    long[] known = offset.at(now);
                    if (pings.size() < 64) {
                        pings.put(count, now);
                        say(Frames.ping(count, now, known[0], known[1]));
                    }
                    // What was handed over and never settled makes room when its lease ends.
                    int before = atHand.size();
                    atHand.values().removeIf(lease -> lease.endMs() < offset.brokerMs(now));
                    room(before - atHand.size());
                }
                flush();
                Thread.sleep(count < 6 ? 10L << count : 1_000);
            }
        } catch (InterruptedException over) {
            Thread.currentThread().interrupt();
        }
    }

    private void room(int rows) {
        if (rows > 0) {
            say(Frames.credit(rows));
        }
    }

    /** The next message that is due, or null if there is none in this time. */
    public synchronized Message receive(long waitMs) {
        long untilUs = ClockOffset.nowUs() + waitMs * 1_000;
        while (true) {
            long now = ClockOffset.nowUs();
            long waitUs = untilUs - now;
            Held next = held.peek();
            if (next != null && next.message.lease.endMs() <= offset.brokerMs(now)) {
                held.poll();
                room(1);
                continue;
            }
            long dueIn = next == null ? Frames.UNKNOWN : offset.waitUs(next.releaseUs, now);
            if (dueIn == 0) {
                held.poll();
                Message message = next.message;
                atHand.put(new Handed(message.id, message.attempts), message.lease);
                return message;
            }
            if (closed) {
                throw DejaQException.unavailable("the consumer is closed");
            }
            if (refused != null) {
                throw refused;
            }
            if (waitUs <= 0) {
                return null;
            }
            pause(dueIn > 0 ? Math.min(dueIn, waitUs) : waitUs);
        }
    }

    private void pause(long us) {
        try {
            TimeUnit.NANOSECONDS.timedWait(this, us * 1_000);
        } catch (InterruptedException wrong) {
            Thread.currentThread().interrupt();
            throw DejaQException.unavailable("interrupted");
        }
    }

    /** Says that messages are done; a status for each. */
    public Status[] ack(List<Message> messages) {
        return settle(Frames.ACK, 0, 0, "", messages);
    }

    /** Gives messages back. */
    public Status[] nack(Refusal refusal, List<Message> messages) {
        int fate = refusal.dead ? Frames.DEAD : 0;
        return settle(Frames.NACK, fate, refusal.delayMs, refusal.reason, messages);
    }

    /** Has leases end so long from now; 0 = the topic's lease. */
    public Status[] extend(long lengthMs, List<Message> messages) {
        Status[] found = settle(Frames.EXTEND, 0, lengthMs, "", messages);
        synchronized (this) {
            long endMs = offset.brokerMs(ClockOffset.nowUs()) + lengthMs;
            for (int row = 0; row < found.length && lengthMs > 0; row++) {
                Message one = messages.get(row);
                if (found[row] == Status.OK) {
                    Message.Lease was = one.lease;
                    one.lease = new Message.Lease(
                            was.partition(), was.id(), was.rows(), endMs, was.generation());
                    atHand.put(new Handed(one.id, one.attempts), one.lease);
                }
            }
        }
        return found;
    }

    /**
     * On the stream that is open, or the next one. If it breaks first, the outcome is unknown. Where the
     * topic was on its way to another broker, nothing was settled: that one is asked.
     */
    private Status[] settle(int op, int fate, long argumentMs, String reason, List<Message> messages) {
        if (messages.isEmpty()) {
            return new Status[0];
        }
        boolean[] again = {false};
        Frames.Reply reply = client.followed(() -> {
            boolean byId = again[0];
            again[0] = true;
            return settleOnce(op, fate, argumentMs, reason, messages, byId);
        });
        if (op != Frames.EXTEND) {
            leave(messages);
        }
        return reply.statusesOf(messages.size());
    }

    /** Names the messages by id and attempt if their lease may be known to another broker. */
    private Frames.Reply settleOnce(
            int op, int fate, long argumentMs, String reason, List<Message> messages, boolean byId) {
        CompletableFuture<Frames.Reply> answer = new CompletableFuture<>();
        synchronized (this) {
            long untilUs = ClockOffset.nowUs() + client.retryMs * 1_000;
            while (stream == null) {
                if (closed || refused != null || ClockOffset.nowUs() > untilUs) {
                    throw DejaQException.unavailable("there is no stream to settle on");
                }
                pause(untilUs - ClockOffset.nowUs() + 1);
            }
            number = number == -1 ? 1 : number + 1; // 0 asks for no reply
            waiting.put(number, answer);
            Message.Lease lease = wholeLease(messages);
            if (lease != null && !byId) {
                say(Frames.settleLease(
                        op, fate, number, lease.partition(), lease.id(), argumentMs, reason));
            } else {
                long[] ids = messages.stream().mapToLong(one -> one.id).toArray();
                int[] attempts = messages.stream().mapToInt(one -> one.attempts).toArray();
                say(Frames.settleRows(op, fate, number, argumentMs, ids, attempts, reason));
            }
        }
        flush();
        try {
            Frames.Reply reply = answer.get(Client.CALL_SECONDS_MAX, TimeUnit.SECONDS);
            if (reply.error() != null) {
                throw reply.error();
            }
            return reply;
        } catch (ExecutionException wrong) {
            throw DejaQException.of(wrong.getCause());
        } catch (TimeoutException | InterruptedException wrong) {
            throw DejaQException.unavailable("no reply in time; the outcome is unknown");
        }
    }

    /** The messages make room for others. */
    void leave(List<Message> messages) {
        synchronized (this) {
            int before = atHand.size();
            messages.forEach(one -> atHand.remove(new Handed(one.id, one.attempts)));
            room(before - atHand.size());
        }
        flush();
    }

    /** The lease that these messages are all of, if it came on this stream; null if not. */
    private Message.Lease wholeLease(List<Message> messages) {
        Message.Lease lease = messages.get(0).lease;
        if (lease == null || lease.generation() != generation || lease.rows() != messages.size()) {
            return null;
        }
        Set<Long> seen = new HashSet<>();
        boolean whole = messages.stream().allMatch(one -> one.lease == lease && seen.add(one.id));
        return whole ? lease : null;
    }

    /** Ends the consumer: what it has and did not settle goes back to the broker at once. */
    @Override
    public void close() {
        ConsumeStream current;
        synchronized (this) {
            if (!closed) {
                closed = true;
                say(Frames.close());
                notifyAll();
            }
            current = stream;
        }
        if (current != null) {
            current.flush();
        }
        try {
            thread.join(5_000);
            if (thread.isAlive() && current != null) {
                current.end(); // it does not answer
            }
        } catch (InterruptedException wrong) {
            Thread.currentThread().interrupt();
        }
    }
}
