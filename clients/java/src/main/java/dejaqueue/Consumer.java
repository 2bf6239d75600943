package dejaqueue;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;

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
    private final int credit;
    private final Thread thread;
    /** Something was said by a thread that must not wait. */
    private final Semaphore poked = new Semaphore(0);
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
    private final AckPipe acks;

    /** It is being closed: nothing is handed over any more. */
    private boolean closing;

    private volatile boolean closed;
    /** No stream is opened any more. */
    private boolean over;

    /** The last stream ended as a CLOSE has it end: the broker took back what it had sent. */
    private volatile boolean whole;

    private final StreamOpener opener;

    Consumer(Client client, String topic, Options options) {
        this.client = client;
        this.topic = topic;
        acks = new AckPipe(client.retryMs);
        credit = options.credit <= 0 ? 1_000 : options.credit;
        ObjectNode command = DejaQException.JSON.createObjectNode().put("topic", topic);
        command.put("consumer", options.name).put("lease_ms", options.leaseMs);
        ArrayNode tags = command.putArray("tags_any");
        options.tagsAny.forEach(tags::add);
        opener = new StreamOpener(client, topic, command);
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
                DejaQException unknown =
                        opener.unknown("the connection broke; whether the messages are settled is unknown");
                waiting.values().forEach(one -> one.completeExceptionally(unknown));
                waiting.clear();
                acks.broke();
                refused = closed || wrong.canRetry() ? null : wrong;
                over = closed || refused != null;
                notifyAll();
                if (over) {
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

    /** One stream, from its opening to its end; why it ended. */
    private DejaQException serve(boolean[] delivered) {
        DejaQException ended = DejaQException.unavailable("the broker ended the stream");
        DejaQException told = ended;
        Thread pinging = new Thread(this::ping, "dejaq-ping");
        ConsumeStream opened = null;
        Attention.Watch watch = null;
        try {
            opened = opener.open();
            synchronized (this) {
                if (closed) {
                    return told;
                }
                generation++;
                offset = offset.next(); // the broker may be another one
                whole = false;
                pings.clear();
                stream = opened;
                say(Frames.credit(Math.max(credit - held.size() - atHand.size(), 0)));
                sendAcks();
                notifyAll();
            }
            opened.flush();
            watch = client.attention.watch(opener.asked(), opened::end);
            watch.waits();
            pinging.setDaemon(true);
            pinging.start();
            while (true) {
                ConsumeStream.Arrival arrival = opened.next();
                if (arrival == null || arrival.frame() instanceof Frames.Ended) {
                    whole = told == ended; // and nothing else was said
                    break;
                }
                watch.hears(true);
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
            told = told == ended ? error : told;
        } finally {
            pinging.interrupt();
            synchronized (this) {
                stream = null;
            }
            if (watch != null) {
                watch.close();
            }
            if (opened != null) {
                opened.end();
            }
        }
        return opener.ended(opened, told, delivered[0], closed);
    }

    /** Under the lock; `flushStream` it without. That it failed is told by the end of the stream. */
    private void say(byte[] frame) {
        if (stream != null && !stream.say(frame)) {
            stream = null;
        }
    }

    /** Not under the lock: the thread that reads needs it, and the broker may wait for that. */
    private void flushStream() {
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
        } else if (frame instanceof Frames.Reply reply && acks.answered(reply, offset.brokerMs(ClockOffset.nowUs()))) {
            sendAcks();
            poked.release(); // this thread must not wait until the broker takes it
            notifyAll();
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
                    sendAcks(); // also those that wait before they are sent again
                }
                flushStream();
                flushUntil(System.nanoTime() + (count < 6 ? 10L << count : 1_000) * 1_000_000);
            }
        } catch (InterruptedException over) {
            Thread.currentThread().interrupt();
        }
    }

    /** Says what others have put, as it comes. */
    private void flushUntil(long untilNs) throws InterruptedException {
        long leftNs = untilNs - System.nanoTime();
        while (leftNs > 0) {
            if (poked.tryAcquire(leftNs, TimeUnit.NANOSECONDS)) {
                poked.drainPermits();
                flushStream();
            }
            leftNs = untilNs - System.nanoTime();
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
            if (closing) {
                throw DejaQException.unavailable("the consumer is closed");
            }
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
                    throw opener.unknown("there is no stream to settle on");
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
        flushStream();
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
            forget(messages);
        }
        flushStream();
    }

    /** Under the lock. */
    private void forget(List<Message> messages) {
        int before = atHand.size();
        messages.forEach(one -> atHand.remove(new Handed(one.id, one.attempts)));
        room(before - atHand.size());
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

    /**
     * Acks messages and does not wait for the broker to make that durable. The acks are sent at once, or as
     * soon as those before them are answered. It waits only while 20,000 are not answered.
     *
     * <p>What it throws is of earlier acks, the first failure since one was told, and the messages given are
     * acked nevertheless; but not if the consumer is closed or refused. `flush` and `close` wait for all
     * answers and tell what was not told. Refused: a message had lost its lease, and may come again. If the
     * connection breaks before the answer, the ack is sent again. Unavailable: the lease may have ended
     * meanwhile, so that whether the message is acked is unknown.
     *
     * <p>An ack is durable when `flush` or `close` has returned and none of them threw.
     */
    public void ackAsync(List<Message> messages) {
        DejaQException told;
        synchronized (this) {
            awaitAcks(AckPipe.ACKS_MAX - 1, Long.MAX_VALUE);
            if (closing || refused != null) {
                throw DejaQException.unavailable("the consumer is closed");
            }
            acks.add(messages);
            sendAcks();
            forget(messages);
            told = acks.told();
        }
        flushStream();
        if (told != null) {
            throw told;
        }
    }

    /** Waits until all acks of `ackAsync` are answered; throws the first failure that was not told. */
    public void flush() {
        DejaQException told;
        synchronized (this) {
            awaitAcks(0, Long.MAX_VALUE);
            told = acks.told();
        }
        if (told != null) {
            throw told;
        }
    }

    /** Under the lock; `flushStream` without. */
    private void sendAcks() {
        if (stream != null) {
            acks.send((ids, attempts) -> {
                number = number == -1 ? 1 : number + 1; // 0 asks for no reply
                say(Frames.settleRows(Frames.ACK, 0, number, 0, ids, attempts, ""));
                return number;
            });
        }
    }

    /** Under the lock, which it lets go of: until no more than so many have no answer, or never will. */
    private void awaitAcks(int most, long untilUs) {
        while (acks.count() > most) {
            long leftUs = untilUs == Long.MAX_VALUE ? 1_000_000 : untilUs - ClockOffset.nowUs();
            if (over) {
                acks.abandon(DejaQException.unavailable("the consumer ended before the answer to an ack: "
                        + "whether it was carried out is unknown"));
            } else if (leftUs <= 0) {
                acks.abandon(DejaQException.unavailable(
                        "no answer to an ack in time: whether it was carried out is unknown"));
            } else {
                pause(leftUs);
            }
        }
    }

    /** Under the lock: what is to be given back of messages under such leases. */
    private List<Left> left(Predicate<Message.Lease> under) {
        List<Message> unseen = new ArrayList<>();
        held.forEach(one -> unseen.add(one.message));
        unseen.removeIf(one -> !under.test(one.lease));
        List<Message> seen = new ArrayList<>();
        atHand.forEach((one, lease) -> {
            if (under.test(lease)) {
                Message message = new Message();
                message.id = one.id;
                message.attempts = one.attempts;
                seen.add(message);
            }
        });
        return Left.of(unseen, seen, offset.reachedMs(ClockOffset.nowUs()));
    }

    /** Gives all back by calls of their own. Nobody is told if that fails. */
    private void giveBackElsewhere() {
        List<Left> found;
        synchronized (this) {
            found = left(lease -> true);
            held.clear();
            atHand.clear();
        }
        for (Left one : found) {
            try {
                client.giveBack(topic, one);
            } catch (DejaQException lost) {
                return; // leases end at their time
            }
        }
    }

    /**
     * Ends the consumer, when the acks of `ackAsync` are answered; it waits for that as long as a batch is
     * retried. What it has and did not settle goes back to the broker at once; what is not due yet comes
     * when it is. It throws what went wrong with an ack and was not told; twice is fine.
     */
    @Override
    public void close() {
        ConsumeStream current;
        DejaQException told;
        boolean first;
        synchronized (this) {
            closing = true;
            notifyAll();
            awaitAcks(0, ClockOffset.nowUs() + client.retryMs * 1_000);
            told = acks.told();
            first = !closed;
            if (first) {
                closed = true;
                // Before the CLOSE, which is about this stream's leases.
                left(lease -> lease.generation() != generation).forEach(one -> say(one.frame()));
                say(Frames.close());
                notifyAll();
            }
            current = stream;
        }
        if (current != null) {
            current.flush();
        }
        try {
            thread.join(current == null ? 1 : 5_000);
            if (thread.isAlive() && current != null) {
                current.end(); // it does not answer
            }
        } catch (InterruptedException wrong) {
            Thread.currentThread().interrupt();
        }
        if (first && (current == null || !whole)) {
            giveBackElsewhere();
        }
        if (told != null) {
            throw told;
        }
    }

}
