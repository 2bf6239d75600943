package dejaqueue;

import com.fasterxml.jackson.databind.JsonNode;
import io.grpc.ManagedChannel;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.flight.FlightClient;

/** One address of a broker, and the connection to it. */
final class Broker {
    /** How long a broker that could not be reached is left to the others. */
    private static final long UNREACHED_NS = TimeUnit.SECONDS.toNanos(60);

    private static final int SIGN_SECONDS_MAX = 5;

    /** What it is known by: host:port. */
    final String address;

    final Lanes lanes;
    private final Client client;
    private final String host;
    private final ManagedChannel channel;
    private final FlightClient flight;
    private volatile boolean reached;
    private volatile long unreachedUntilNs = System.nanoTime();

    /**
     * An address.
     *
     * @param named whether the client's address names it: then it is asked whatever happens
     */
    Broker(
            Client client, String host, int port, ManagedChannel channel, FlightClient flight,
            Lanes.Means means, boolean named) {
        this.client = client;
        this.host = host;
        address = host + ":" + port;
        this.channel = channel;
        this.flight = flight;
        reached = named;
        lanes = new Lanes(client, this, means);
    }

    String host() {
        return host;
    }

    ManagedChannel channel() {
        return channel;
    }

    FlightClient flight() {
        return flight;
    }

    /** Whether nobody has found out that it cannot be reached. */
    boolean mayBeReached() {
        return reached || System.nanoTime() - unreachedUntilNs >= 0;
    }

    /**
     * Asks a broker that another one told of for a sign of life, once: its address may be one that only
     * brokers reach.
     */
    synchronized boolean isReached() {
        if (reached || !mayBeReached()) {
            return reached;
        }
        reached = !isSilent();
        if (!reached) {
            unreachedUntilNs = System.nanoTime() + UNREACHED_NS;
        }
        return reached;
    }

    /** Asks for a sign of life, and waits for it. */
    boolean isSilent() {
        try {
            JsonNode nothing = DejaQException.JSON.createObjectNode();
            client.action(this, "clock", nothing, SIGN_SECONDS_MAX, false);
            return false;
        } catch (DejaQException wrong) {
            return wrong.number == DejaQException.UNAVAILABLE;
        }
    }

    /** Ends the connection. */
    void close() throws InterruptedException {
        channel.shutdown();
        if (!channel.awaitTermination(2, TimeUnit.SECONDS)) {
            channel.shutdownNow().awaitTermination(2, TimeUnit.SECONDS);
        }
    }
}
