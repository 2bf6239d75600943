package dejaqueue;

import com.fasterxml.jackson.databind.JsonNode;
import io.grpc.ManagedChannel;
import java.net.URI;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.flight.FlightClient;

/** One address of a broker, and the connection to it. */
final class Broker {
    /** How long a broker that could not be reached is left to the others. */
    private static final long UNREACHED_NS = TimeUnit.SECONDS.toNanos(60);

    private static final int SIGN_SECONDS_MAX = 5;

    /** For one that gave no sign of life: whoever comes next does not wait anew. */
    private static final int SIGN_AGAIN_SECONDS_MAX = 2;

    /** What it is known by: host:port. */
    final String address;

    private final String url;

    final Lanes lanes;
    private final Client client;
    private final String host;
    private final ManagedChannel channel;
    private final FlightClient flight;
    private volatile boolean reached;
    private volatile long unreachedUntilNs = System.nanoTime();
    private volatile boolean lost;

    /**
     * An address.
     *
     * @param told where it is; without a port it is the usual one
     * @param named whether the client's address names it: then it is asked whatever happens
     */
    Broker(
            Client client, URI told, int port, ManagedChannel channel, FlightClient flight,
            Lanes.Means means, boolean named) {
        this.client = client;
        host = told.getHost();
        address = host + ":" + port;
        url = told.getScheme() + "://" + address;
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

    /** Asks for a sign of life, waits for it, and remembers whether one came. */
    boolean isSilent() {
        boolean silent = false;
        try {
            JsonNode nothing = DejaQException.JSON.createObjectNode();
            client.action(this, "clock", nothing, signSecondsMax(), false);
        } catch (DejaQException wrong) {
            silent = wrong.number == DejaQException.UNAVAILABLE;
        }
        lost = silent;
        return silent;
    }

    /** How long it has for a sign of life. */
    int signSecondsMax() {
        return lost ? SIGN_AGAIN_SECONDS_MAX : SIGN_SECONDS_MAX;
    }

    /** Whether it gave none when it was asked last. */
    boolean isLost() {
        return lost;
    }

    /** What ends whatever waits for it while it gives none. */
    DejaQException silence() {
        return DejaQException.unavailable(
                "the broker at " + url + " does not answer; the outcome is unknown");
    }

    /** Ends the connection. */
    void close() throws InterruptedException {
        channel.shutdown();
        if (!channel.awaitTermination(2, TimeUnit.SECONDS)) {
            channel.shutdownNow().awaitTermination(2, TimeUnit.SECONDS);
        }
    }
}
