package dejaqueue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.VectorSchemaRoot;

/**
 * Batches of one producer's name, by Flight, over as many streams as it takes. Those that were not
 * answered when one broke are sent again under their numbers, and are not applied twice.
 */
final class FlightBatches {
    /** The producer's name. */
    final String producer;

    private final Client client;
    private final ObjectNode command;
    private final String topic;
    private final ScheduledThreadPoolExecutor retries = oneThread();
    // Guarded by `this`: numbers, what waits, and the order of writing.
    private final Map<Integer, Outgoing> waiting = new LinkedHashMap<>();
    private int number;
    private Stream stream;
    private boolean connecting;
    private int failures;
    private boolean closed;

    private static final class Outgoing {
        final int number;
        final List<Message> messages;
        final long deadlineNs;
        final CompletableFuture<Frames.Reply> answer = new CompletableFuture<>();
        /** What a broker answered last; null = nothing yet. */
        DejaQException refused;

        Outgoing(int number, List<Message> messages, long deadlineNs) {
            this.number = number;
            this.messages = messages;
            this.deadlineNs = deadlineNs;
        }
    }

    private record Stream(
            FlightClient.ClientStreamListener writer, VectorSchemaRoot root, Broker broker,
            Attention.Watch watch) {}

    FlightBatches(Client client, ObjectNode command) {
        byte[] name = new byte[16];
        new SecureRandom().nextBytes(name); // an earlier run's name would get that run's answers
        this.client = client;
        producer = HexFormat.of().formatHex(name);
        this.command = command.put("producer", producer);
        topic = command.path("topic").asText();
    }

    /** One thread while there is something to do: a program may have a producer for each topic. */
    private static ScheduledThreadPoolExecutor oneThread() {
        ScheduledThreadPoolExecutor made = new ScheduledThreadPoolExecutor(1, run -> {
            Thread thread = new Thread(run, "dejaq-producer");
            thread.setDaemon(true);
            return thread;
        });
        made.setKeepAliveTime(1, TimeUnit.SECONDS);
        made.allowCoreThreadTimeOut(true);
        return made;
    }

    /** How long to wait before the next attempt: doubling, with jitter of a half. */
    static long pauseMs(int failures) {
        long full = Math.min(20L << Math.min(failures, 6), 1_000);
        return full / 2 + ThreadLocalRandom.current().nextLong(full / 2);
    }

    /** The number behind this one: unsigned, and after the last one comes 1. */
    static int next(int number) {
        return number == -1 ? 1 : number + 1;
    }

    /** Sends a batch under the next number. */
    synchronized CompletableFuture<Frames.Reply> submit(List<Message> messages) {
        number = next(number);
        return submit(number, messages, System.nanoTime() + client.retryMs * 1_000_000);
    }

    /** Sends a batch under a number that is not behind any that was answered, until a time. */
    synchronized CompletableFuture<Frames.Reply> submit(
            int own, List<Message> messages, long deadlineNs) {
        if (closed) {
            throw DejaQException.unavailable("the producer is closed");
        }
        Outgoing sending = new Outgoing(own, messages, deadlineNs);
        waiting.put(own, sending);
        if (stream != null) {
            write(stream, sending);
        } else if (!connecting) {
            connecting = true;
            retries.execute(this::connect);
        }
        return sending.answer;
    }

    /** That it failed is told by the end of the stream. */
    private void write(Stream to, Outgoing sending) {
        to.watch.waits();
        client.flights.use(this);
        try {
            Rows.fillSend(to.root, sending.messages);
            ArrowBuf metadata = client.memory.buffer(4);
            ByteBuffer bytes = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN);
            metadata.writeBytes(bytes.putInt(sending.number).array());
            to.writer.putNext(metadata);
            to.root.clear(); // a producer that waits for its next batch holds no memory
        } catch (RuntimeException | OutOfMemoryError broken) {
            drop(to, DejaQException.of(broken));
        }
    }

    private void connect() {
        openStream(client.routes.route(topic)); // which may wait for a broker
    }

    private synchronized void openStream(Routes.Route route) {
        connecting = false;
        Broker asked = route.broker();
        expire(asked);
        if (closed || waiting.isEmpty()) {
            return;
        }
        asked.channel().resetConnectBackoff();
        VectorSchemaRoot root = VectorSchemaRoot.create(Rows.SEND, client.memory);
        Stream[] opened = new Stream[1];
        try {
            var replies = new Client.Replies(
                    frame -> later(() -> answered(opened[0], frame)),
                    wrong -> later(() -> ended(opened, DejaQException.of(wrong))));
            var descriptor = Client.descriptor(command);
            var writer = asked.flight().startPut(descriptor, root, replies, client.streamOptions(route.follows()));
            var watch = client.attention.watch(asked, () -> writer.error(asked.silence()));
            opened[0] = new Stream(writer, root, asked, watch);
        } catch (RuntimeException | OutOfMemoryError wrong) {
            root.close();
            client.routes.learn(topic, asked, DejaQException.of(wrong));
            broke(DejaQException.of(wrong));
            return;
        }
        stream = opened[0];
        for (Outgoing sending : List.copyOf(waiting.values())) {
            if (stream == opened[0]) {
                write(stream, sending);
            }
        }
    }

    /**
     * Does it beside the thread that reads answers. Whoever writes has the lock and waits until the
     * stream takes more, or has ended, which that thread is the one to say.
     */
    void later(Runnable work) {
        try {
            retries.execute(work);
        } catch (RejectedExecutionException over) {
            // It is closed: nobody waits for an answer.
        }
    }

    private synchronized void ended(Stream[] from, DejaQException wrong) {
        drop(from[0], wrong);
    }

    private synchronized void drop(Stream from, DejaQException wrong) {
        if (from == null || stream != from) {
            return;
        }
        stream = null;
        client.flights.leave(this);
        from.watch.close();
        client.routes.learn(topic, from.broker, wrong);
        from.root.close();
        try {
            from.writer.error(wrong);
        } catch (RuntimeException over) {
            // It has ended by itself.
        }
        if (from.broker.isLost()) {
            expire(from.broker); // rather than after one more question
        }
        broke(wrong);
    }

    /** Under the lock: what was tried for as long as it may be fails. */
    private void expire(Broker asked) {
        long now = System.nanoTime();
        for (Outgoing sending : List.copyOf(waiting.values())) {
            if (sending.deadlineNs - now < 0) {
                waiting.remove(sending.number);
                DejaQException why = asked.isLost() ? asked.silence() : DejaQException.unavailable(
                        "no connection to the broker in time; the outcome is unknown");
                sending.answer.completeExceptionally(sending.refused == null ? why : sending.refused);
            }
        }
    }

    /** There is no stream: what waits is sent again, or fails. */
    private void broke(DejaQException wrong) {
        if (!wrong.canRetry()) {
            List<Outgoing> failed = new ArrayList<>(waiting.values());
            waiting.clear();
            failed.forEach(sending -> sending.answer.completeExceptionally(wrong));
        } else if (!waiting.isEmpty() && !connecting && !closed) {
            connecting = true;
            long after = Math.max(pauseMs(failures++), wrong.retryAfterMs());
            retries.schedule(this::connect, after, TimeUnit.MILLISECONDS);
        }
    }

    private synchronized void answered(Stream from, Frames.Frame frame) {
        from.watch.hears(waiting.size() > 1);
        if (!(frame instanceof Frames.Reply reply)) {
            return;
        }
        Outgoing sending = waiting.get(reply.number());
        if (sending == null) {
            return;
        }
        DejaQException wrong = reply.error();
        if (wrong != null && wrong.canRetry() && System.nanoTime() < sending.deadlineNs) {
            sending.refused = wrong;
            drop(from, wrong); // it is sent again, in its place
            return;
        }
        waiting.remove(reply.number());
        if (wrong == null) {
            failures = 0;
            sending.answer.complete(reply);
        } else {
            sending.answer.completeExceptionally(wrong);
        }
    }

    /** Ends the stream, if nothing is on its way; the next batch opens another one. */
    synchronized void rest() {
        if (stream == null) {
            return;
        }
        if (waiting.isEmpty()) {
            complete();
        } else {
            client.flights.keep(this);
        }
    }

    /** Under the lock. */
    private void complete() {
        client.flights.leave(this);
        stream.watch.close();
        stream.writer.completed();
        stream.root.close();
        stream = null;
    }

    /** Ends the stream; nothing is on its way. */
    synchronized void close() {
        closed = true;
        retries.shutdown();
        if (stream != null) {
            complete();
        }
    }
}
