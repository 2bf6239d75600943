package dejaqueue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.TlsChannelCredentials;
import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.arrow.flight.Action;
import org.apache.arrow.flight.CallOption;
import org.apache.arrow.flight.CallOptions;
import org.apache.arrow.flight.FlightCallHeaders;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightGrpcUtils;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.HeaderCallOption;
import org.apache.arrow.flight.PutResult;
import org.apache.arrow.flight.Result;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;

/**
 * A connection to a broker, which is made again when it breaks: to the next one, where the address
 * names several. Safe for many threads.
 */
public final class Client implements AutoCloseable {
    private static final int DEFAULT_PORT = 7464;
    static final long CALL_SECONDS_MAX = 60;

    final BufferAllocator memory = new RootAllocator();
    private final List<Broker> brokers = new ArrayList<>();
    private final AtomicInteger at = new AtomicInteger(); // which of them
    final long retryMs;
    final Lanes lanes;
    private final CallOption[] headers;

    /**
     * How to connect.
     *
     * @param apiKey goes with every call; empty = none
     * @param ca a PEM file with the certificates to trust; null = the system's
     * @param retryMs how long a batch is sent again after its connection broke; 0 = 30,000
     * @param flightOnly do without the broker's express lane, which is at its HTTP port
     */
    public record Options(String apiKey, File ca, long retryMs, boolean flightOnly) {
        /** The lane is taken where there is one. */
        public Options(String apiKey, File ca, long retryMs) {
            this(apiKey, ca, retryMs, false);
        }

        /** No key, the system's certificates, 30 seconds. */
        public Options() {
            this("", null, 0);
        }
    }

    /** One address. In a cluster any broker takes any call. */
    record Broker(String host, ManagedChannel channel, FlightClient flight) {}

    /** A new due time of a message that is not leased yet, by id, or by key if it is not empty. */
    public record Change(long id, String key, long dueMs) {}

    /** An id and a status for each message, in order. */
    public record Sent(long[] ids, Status[] statuses) {}

    /**
     * A client of dejaq://host:port, or dejaqs:// for TLS; of a cluster it takes several,
     * dejaq://host:port,host:port. It does not wait for the broker.
     */
    public Client(String url, Options options) {
        int mark = Math.max(url.indexOf("://"), 0);
        String scheme = url.substring(0, mark);
        boolean secured = "dejaqs".equals(scheme);
        ChannelCredentials credentials = InsecureChannelCredentials.create();
        try {
            if (secured && options.ca != null) {
                credentials = TlsChannelCredentials.newBuilder().trustManager(options.ca).build();
            } else if (secured) {
                credentials = TlsChannelCredentials.create();
            }
        } catch (IOException wrong) {
            throw DejaQException.badRequest("ca", "a PEM file that can be read", options.ca);
        }
        List<URI> addresses = new ArrayList<>();
        for (String address : url.substring(mark).replaceFirst("^://", "").split(",", -1)) {
            addresses.add(parsed(scheme, address.strip(), url));
        }
        for (URI one : addresses) {
            int port = one.getPort() < 0 ? DEFAULT_PORT : one.getPort();
            ManagedChannel channel = Grpc.newChannelBuilderForAddress(one.getHost(), port, credentials)
                    .maxInboundMessageSize(Integer.MAX_VALUE).build();
            FlightClient flight = FlightGrpcUtils.createFlightClient(memory, channel);
            brokers.add(new Broker(one.getHost(), channel, flight));
        }
        retryMs = options.retryMs == 0 ? 30_000 : options.retryMs;
        FlightCallHeaders sent = new FlightCallHeaders();
        if (!options.apiKey.isEmpty()) {
            sent.insert("authorization", "Bearer " + options.apiKey);
        }
        headers = new CallOption[] {new HeaderCallOption(sent)};
        lanes = Lanes.of(this, secured, options);
    }

    private static URI parsed(String scheme, String address, String url) {
        try {
            URI found = new URI(scheme + "://" + address);
            if (found.getHost() != null && ("dejaq".equals(scheme) || "dejaqs".equals(scheme))) {
                return found;
            }
        } catch (URISyntaxException wrong) {
            // Told below.
        }
        throw DejaQException.badRequest("url", "dejaq://host:port or dejaqs://host:port", url);
    }

    /** Whom to ask now. */
    Broker broker() {
        return brokers.get(at.get());
    }

    /** Has the next broker be asked if what went wrong at this one may be for its being away. */
    void leave(Broker from, DejaQException wrong) {
        int now = at.get();
        if (wrong.number == DejaQException.UNAVAILABLE && brokers.get(now) == from) {
            at.compareAndSet(now, (now + 1) % brokers.size());
        }
    }

    CallOption[] streamOptions() {
        return headers;
    }

    private CallOption[] callOptions(long seconds) {
        return new CallOption[] {headers[0], CallOptions.timeout(seconds, TimeUnit.SECONDS)};
    }

    /**
     * Calls again while the topic is on its way to another broker: what was answered with Elsewhere
     * was not carried out.
     */
    <T> T followed(Supplier<T> call) {
        long untilNs = System.nanoTime() + retryMs * 1_000_000;
        for (int failures = 0; ; failures++) {
            try {
                return call.get();
            } catch (DejaQException wrong) {
                if (wrong.number != DejaQException.ELSEWHERE || System.nanoTime() > untilNs) {
                    throw wrong;
                }
                try {
                    long asked = Math.min(wrong.retryAfterMs(), 1_000);
                    Thread.sleep(Math.max(FlightBatches.pauseMs(failures), asked));
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                    throw wrong;
                }
            }
        }
    }

    /** A call to a broker, which is left if it is away. */
    private <T> T at(Broker asked, Supplier<T> call) {
        try {
            return call.get();
        } catch (DejaQException wrong) {
            leave(asked, wrong);
            throw wrong;
        }
    }

    /** An administrative call: a JSON object in, a JSON object out. */
    public JsonNode action(String name, JsonNode body) {
        Broker asked = broker();
        return at(asked, () -> action(asked, name, body, CALL_SECONDS_MAX));
    }

    /** Asks one broker. */
    JsonNode action(Broker asked, String name, JsonNode body, long seconds) {
        try {
            byte[] content = DejaQException.JSON.writeValueAsBytes(body);
            Iterator<Result> results =
                    asked.flight.doAction(new Action(name, content), callOptions(seconds));
            JsonNode answer = DejaQException.JSON.createObjectNode();
            for (boolean first = true; results.hasNext(); first = false) {
                byte[] told = results.next().getBody();
                answer = first ? DejaQException.JSON.readTree(told) : answer;
            }
            return answer;
        } catch (IOException wrong) {
            throw DejaQException.broken("a JSON object for " + name);
        } catch (RuntimeException wrong) {
            throw DejaQException.of(wrong);
        }
    }

    /** Makes a topic; one with the same settings may exist. Settings may be null. */
    public void createTopic(String name, ObjectNode settings) {
        ObjectNode body = DejaQException.JSON.createObjectNode();
        if (settings != null) {
            body.setAll(settings);
        }
        body.put("name", name).put("exist_ok", true);
        followed(() -> action("create_topic", body));
    }

    /** Looks at messages without leasing them. The query has the fields of docs/wire.md, or is null. */
    public List<Message> peek(String topic, ObjectNode query) {
        ObjectNode ticket = DejaQException.JSON.createObjectNode();
        if (query != null) {
            ticket.setAll(query);
        }
        byte[] content = ticket.put("op", "peek").put("topic", topic).toString()
                .getBytes(StandardCharsets.UTF_8);
        return followed(() -> {
            Broker asked = broker();
            return at(asked, () -> peekOnce(asked, content));
        });
    }

    private List<Message> peekOnce(Broker asked, byte[] content) {
        List<Message> found = new ArrayList<>();
        Ticket ticket = new Ticket(content);
        try (FlightStream stream = asked.flight.getStream(ticket, callOptions(CALL_SECONDS_MAX))) {
            while (stream.next()) {
                found.addAll(Rows.messages(stream.getRoot()));
            }
            return found;
        } catch (Exception wrong) {
            throw DejaQException.of(wrong);
        }
    }

    /** A producer of a topic. Close it. */
    public Producer producer(String topic) {
        return Producer.of(this, topic);
    }

    /** Begins to consume a topic. Close the consumer. */
    public Consumer consume(String topic, Consumer.Options options) {
        return new Consumer(this, topic, options);
    }

    /** Begins a transaction, whose decision the topic keeps. It is aborted after the timeout. */
    public Transaction begin(String topic, long timeoutMs) {
        ObjectNode body = DejaQException.JSON.createObjectNode();
        body.put("topic", topic).put("timeout_ms", timeoutMs);
        JsonNode answer = followed(() -> action("begin_transaction", body));
        return new Transaction(this, answer.path("transaction").asText());
    }

    /** Gives messages another due time; a status for each. */
    public Status[] move(String topic, List<Change> changes) {
        return rename(topic, "move", changes);
    }

    /** Takes back messages that are not leased yet; the due times are not looked at. */
    public Status[] cancel(String topic, List<Change> changes) {
        return rename(topic, "cancel", changes);
    }

    private Status[] rename(String topic, String op, List<Change> changes) {
        if (changes.isEmpty()) {
            return new Status[0];
        }
        ObjectNode command = DejaQException.JSON.createObjectNode().put("topic", topic).put("op", op);
        try (VectorSchemaRoot root = Rows.changes(memory, changes, op.equals("move"))) {
            return write(command, root).statusesOf(changes.size());
        }
    }

    /** Acks by id and attempt, in a transaction. */
    Status[] stageAcks(String topic, String transaction, List<Message> messages) {
        ObjectNode command = DejaQException.JSON.createObjectNode().put("topic", topic);
        command.put("op", "ack").put("transaction", transaction);
        try (VectorSchemaRoot root = Rows.settle(memory, messages)) {
            return write(command, root).statusesOf(messages.size());
        }
    }

    /** Sends one batch on a stream of its own; if it breaks, the outcome is unknown. */
    private Frames.Reply write(ObjectNode command, VectorSchemaRoot root) {
        return followed(() -> {
            Broker asked = broker();
            return at(asked, () -> writeOnce(asked, command, root));
        });
    }

    private Frames.Reply writeOnce(Broker asked, ObjectNode command, VectorSchemaRoot root) {
        CompletableFuture<Frames.Frame> answer = new CompletableFuture<>();
        FlightClient.PutListener replies = new Replies(answer::complete, answer::completeExceptionally);
        try {
            var stream = asked.flight.startPut(descriptor(command), root, replies, streamOptions());
            stream.putNext();
            stream.completed();
            Frames.Frame frame = answer.get(CALL_SECONDS_MAX, TimeUnit.SECONDS);
            if (!(frame instanceof Frames.Reply reply)) {
                throw DejaQException.broken("a REPLY");
            }
            if (reply.error() != null) {
                throw reply.error();
            }
            return reply;
        } catch (ExecutionException wrong) {
            throw DejaQException.of(wrong.getCause());
        } catch (TimeoutException | InterruptedException wrong) {
            throw DejaQException.unavailable("no reply in time; the outcome is unknown");
        } catch (RuntimeException wrong) {
            throw DejaQException.of(wrong);
        }
    }

    static FlightDescriptor descriptor(ObjectNode command) {
        return FlightDescriptor.command(command.toString().getBytes(StandardCharsets.UTF_8));
    }

    static byte[] bytesOf(ArrowBuf buffer) {
        byte[] found = new byte[(int) buffer.readableBytes()];
        buffer.getBytes(buffer.readerIndex(), found);
        return found;
    }

    /** Ends the connection. Close producers and consumers before. */
    @Override
    public void close() {
        lanes.close();
        try {
            brokers.forEach(one -> one.channel.shutdown());
            for (Broker one : brokers) {
                if (!one.channel.awaitTermination(2, TimeUnit.SECONDS)) {
                    one.channel.shutdownNow().awaitTermination(2, TimeUnit.SECONDS);
                }
            }
        } catch (InterruptedException wrong) {
            Thread.currentThread().interrupt();
        }
    }

    /** Frames of a DoPut stream, and its end. */
    static final class Replies implements FlightClient.PutListener {
        private final java.util.function.Consumer<Frames.Frame> onFrame;
        private final java.util.function.Consumer<Throwable> onEnd;
        private volatile boolean over;

        Replies(
                java.util.function.Consumer<Frames.Frame> onFrame,
                java.util.function.Consumer<Throwable> onEnd) {
            this.onFrame = onFrame;
            this.onEnd = onEnd;
        }

        @Override
        public void onNext(PutResult result) {
            onFrame.accept(Frames.decode(bytesOf(result.getApplicationMetadata())));
        }

        @Override
        public void onError(Throwable wrong) {
            over = true;
            onEnd.accept(wrong);
        }

        @Override
        public void onCompleted() {
            over = true;
            onEnd.accept(DejaQException.unavailable("the broker ended the stream"));
        }

        @Override
        public boolean isCancelled() {
            return over;
        }

        @Override
        public void getResult() {}
    }
}
