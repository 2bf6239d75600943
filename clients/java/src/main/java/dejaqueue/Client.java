package dejaqueue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.grpc.ChannelCredentials;
import io.grpc.Context;
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
import java.util.function.Function;
import java.util.function.Predicate;
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
    final long retryMs;
    final Routes routes;
    final Attention attention = new Attention();
    final Flights flights = new Flights();
    private final CallOption[] staying;
    private final CallOption[] following;

    /**
     * How to connect.
     *
     * @param apiKey goes with every call; empty = none
     * @param ca a PEM file with the certificates to trust; null = the system's
     * @param retryMs how long a batch is sent again after its connection broke; 0 = 30,000
     * @param flightOnly do without the broker's express lane, which is at its HTTP port
     * @param stays have the brokers of the address pass on what another one serves; otherwise the client
     *     goes there itself, if it is reached from here
     */
    public record Options(String apiKey, File ca, long retryMs, boolean flightOnly, boolean stays) {
        /** The lane is taken where there is one. */
        public Options(String apiKey, File ca, long retryMs) {
            this(apiKey, ca, retryMs, false);
        }

        /** The client goes to the broker that serves a topic. */
        public Options(String apiKey, File ca, long retryMs, boolean flightOnly) {
            this(apiKey, ca, retryMs, flightOnly, false);
        }

        /** No key, the system's certificates, 30 seconds. */
        public Options() {
            this("", null, 0);
        }
    }

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
        retryMs = options.retryMs == 0 ? 30_000 : options.retryMs;
        FlightCallHeaders sent = new FlightCallHeaders();
        FlightCallHeaders sentToFollow = new FlightCallHeaders();
        if (!options.apiKey.isEmpty()) {
            sent.insert("authorization", "Bearer " + options.apiKey);
            sentToFollow.insert("authorization", "Bearer " + options.apiKey);
        }
        sentToFollow.insert("x-dejaq-follows", "1");
        staying = new CallOption[] {new HeaderCallOption(sent)};
        following = new CallOption[] {new HeaderCallOption(sentToFollow)};
        Lanes.Means means = Lanes.means(secured, options);
        ChannelCredentials trusted = credentials;
        routes = new Routes(
                scheme, options.stays, told -> connected(told, trusted, means, false));
        addresses.forEach(one -> routes.add(connected(one, trusted, means, true)));
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

    private Broker connected(URI url, ChannelCredentials credentials, Lanes.Means means, boolean named) {
        int port = url.getPort() < 0 ? DEFAULT_PORT : url.getPort();
        ManagedChannel channel = Grpc.newChannelBuilderForAddress(url.getHost(), port, credentials)
                .maxInboundMessageSize(Integer.MAX_VALUE).build();
        FlightClient flight = FlightGrpcUtils.createFlightClient(memory, channel);
        return new Broker(this, url, port, channel, flight, means, named);
    }

    /** Of a stream; one that follows is answered with the broker that serves the topic. */
    CallOption[] streamOptions(boolean follows) {
        return follows ? following : staying;
    }

    private CallOption[] callOptions(long seconds, boolean follows) {
        return new CallOption[] {streamOptions(follows)[0], CallOptions.timeout(seconds, TimeUnit.SECONDS)};
    }

    /**
     * Calls again while the topic is another broker's, or on its way there: what was answered with
     * Elsewhere was not carried out.
     */
    <T> T followed(Supplier<T> call) {
        return again(call, wrong -> wrong.number == DejaQException.ELSEWHERE);
    }

    /** Calls again, too, while no broker answers: for what may be done twice. */
    <T> T patiently(Supplier<T> call) {
        return again(
                call, wrong -> wrong.canRetry() && wrong.number != DejaQException.RESOURCE_EXHAUSTED);
    }

    private <T> T again(Supplier<T> call, Predicate<DejaQException> may) {
        long untilNs = System.nanoTime() + retryMs * 1_000_000;
        for (int failures = 0; ; failures++) {
            try {
                return call.get();
            } catch (DejaQException wrong) {
                if (!may.test(wrong) || System.nanoTime() - untilNs > 0) {
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

    /** A call to a broker, which ends when that one falls silent. */
    private <T> T attended(Broker asked, Supplier<T> call) {
        Context.CancellableContext context = Context.current().withCancellation();
        Context before = context.attach();
        try (Attention.Watch watch =
                attention.watch(asked, () -> context.cancel(asked.silence()))) {
            watch.waits();
            return call.get();
        } catch (DejaQException wrong) {
            throw context.cancellationCause() instanceof DejaQException silent ? silent : wrong;
        } finally {
            context.detach(before);
            context.cancel(null);
        }
    }

    /** A call about nothing that a client follows. */
    private <T> T asked(Function<Broker, T> call) {
        Broker asked = routes.broker();
        try {
            return attended(asked, () -> call.apply(asked));
        } catch (DejaQException wrong) {
            routes.leave(asked, wrong);
            throw wrong;
        }
    }

    /** An administrative call: a JSON object in, a JSON object out. It is made once. */
    public JsonNode action(String name, JsonNode body) {
        return asked(broker -> action(broker, name, body, CALL_SECONDS_MAX, false));
    }

    /** One about a topic, that may be carried out twice, by the broker of the topic. */
    JsonNode actionOf(String topic, String name, JsonNode body) {
        return patiently(() -> {
            Routes.Route route = routes.route(topic);
            Broker asked = route.broker();
            try {
                return attended(
                        asked, () -> action(asked, name, body, CALL_SECONDS_MAX, route.follows()));
            } catch (DejaQException wrong) {
                routes.learn(topic, asked, wrong);
                throw wrong;
            }
        });
    }

    /** One that may be carried out twice. */
    JsonNode repeated(String name, JsonNode body) {
        return patiently(() -> action(name, body));
    }

    /** Asks one broker. */
    JsonNode action(Broker asked, String name, JsonNode body, long seconds, boolean follows) {
        try {
            asked.channel().resetConnectBackoff(); // it may be back
            byte[] content = DejaQException.JSON.writeValueAsBytes(body);
            Iterator<Result> results =
                    asked.flight().doAction(new Action(name, content), callOptions(seconds, follows));
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
        repeated("create_topic", body);
    }

    /** Looks at messages without leasing them. The query has the fields of docs/wire.md, or is null. */
    public List<Message> peek(String topic, ObjectNode query) {
        ObjectNode ticket = DejaQException.JSON.createObjectNode();
        if (query != null) {
            ticket.setAll(query);
        }
        byte[] content = ticket.put("op", "peek").put("topic", topic).toString()
                .getBytes(StandardCharsets.UTF_8);
        return patiently(() -> asked(broker -> peekOnce(broker, content)));
    }

    private List<Message> peekOnce(Broker asked, byte[] content) {
        List<Message> found = new ArrayList<>();
        Ticket ticket = new Ticket(content);
        asked.channel().resetConnectBackoff();
        try (FlightStream stream = asked.flight().getStream(ticket, callOptions(CALL_SECONDS_MAX, false))) {
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
        JsonNode answer = actionOf(topic, "begin_transaction", body);
        return new Transaction(this, topic, answer.path("transaction").asText());
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
            // If it breaks, the outcome is unknown.
            return followed(() -> write(topic, command, root)).statusesOf(changes.size());
        }
    }

    /** Acks by id and attempt, in a transaction, where the same ack may be staged twice. */
    Status[] stageAcks(String topic, String transaction, List<Message> messages) {
        ObjectNode command = DejaQException.JSON.createObjectNode().put("topic", topic);
        command.put("op", "ack").put("transaction", transaction);
        try (VectorSchemaRoot root = Rows.settle(memory, messages)) {
            return patiently(() -> write(topic, command, root)).statusesOf(messages.size());
        }
    }

    /** Gives back by id and attempt, once. */
    void giveBack(String topic, Left left) {
        ObjectNode command = DejaQException.JSON.createObjectNode().put("topic", topic).put("op", "nack");
        command.put("argument_ms", left.argumentMs()).put("released", left.released());
        try (VectorSchemaRoot root = Rows.settle(memory, left.messages())) {
            write(topic, command, root);
        }
    }

    /** Sends one batch about a topic on a stream of its own; if it breaks, the outcome is unknown. */
    private Frames.Reply write(String topic, ObjectNode command, VectorSchemaRoot root) {
        Routes.Route route = routes.route(topic);
        try {
            return writeOnce(route, command, root);
        } catch (DejaQException wrong) {
            routes.learn(topic, route.broker(), wrong);
            throw wrong;
        }
    }

    private Frames.Reply writeOnce(Routes.Route route, ObjectNode command, VectorSchemaRoot root) {
        CompletableFuture<Frames.Frame> answer = new CompletableFuture<>();
        Replies replies = new Replies(answer::complete, answer::completeExceptionally);
        FlightClient.ClientStreamListener stream = null;
        try (Attention.Watch watch = attention.watch(
                route.broker(), () -> replies.onError(route.broker().silence()))) {
            route.broker().channel().resetConnectBackoff();
            stream = route.broker().flight().startPut(
                    descriptor(command), root, replies, streamOptions(route.follows()));
            watch.waits();
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
            throw abandoned(stream, DejaQException.of(wrong.getCause()));
        } catch (TimeoutException | InterruptedException wrong) {
            throw abandoned(stream, DejaQException.unavailable("no reply in time; the outcome is unknown"));
        } catch (RuntimeException wrong) {
            throw DejaQException.of(wrong);
        }
    }

    private static DejaQException abandoned(
            FlightClient.ClientStreamListener stream, DejaQException wrong) {
        try {
            stream.error(wrong);
        } catch (RuntimeException over) {
            // It has ended by itself.
        }
        return wrong;
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
        attention.close();
        try {
            routes.all().forEach(one -> one.channel().shutdown());
            for (Broker one : routes.all()) {
                one.lanes.close();
                one.close();
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

        /** Whoever writes waits until the stream takes more, or until this is true. */
        @Override
        public boolean isCancelled() {
            return over;
        }

        @Override
        public void getResult() {}
    }
}
