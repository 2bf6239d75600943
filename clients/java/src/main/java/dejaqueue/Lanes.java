package dejaqueue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Where a client gets its lanes to a broker, which says whether it has any. One that has none, or cannot
 * be reached there, is asked again after a growing pause; meanwhile all goes by Flight.
 */
final class Lanes {
    /** The longest pause; what a lane did not take stays with Flight for so long. */
    static final long FLIGHT_NS = TimeUnit.SECONDS.toNanos(60);

    private static final long FIRST_PAUSE_NS = TimeUnit.SECONDS.toNanos(1);

    /** What is needed to open one: a key or "", what is trusted (null = plain), whether it is wanted. */
    record Means(String apiKey, SSLContext tls, boolean wanted) {}

    /** An open connection, and whether messages with fields may go by it. */
    record Opened(Broker broker, LaneSocket socket, boolean hasFields) {}

    private final Client client;
    private final Broker broker;
    private final Means means;
    private final ReentrantLock turn = new ReentrantLock();
    private volatile Lane lane;
    private volatile boolean closed;
    // Guarded by `this`.
    private volatile long pauseNs;
    private long closedUntilNs = System.nanoTime();
    private long awayUntilNs = System.nanoTime();

    Lanes(Client client, Broker broker, Means means) {
        this.client = client;
        this.broker = broker;
        this.means = means;
    }

    /** How lanes are opened; the same certificates are trusted as by Flight. */
    static Means means(boolean secured, Client.Options options) {
        // A key that is no header would be refused by gRPC, too, which says so better.
        boolean wanted =
                !options.flightOnly() && options.apiKey().chars().allMatch(one -> one > 32 && one < 127);
        SSLContext tls = null;
        try {
            tls = secured ? trusting(options.ca()) : null;
        } catch (GeneralSecurityException | IOException wrong) {
            wanted = false; // Flight tells what is wrong with them
        }
        return new Means(options.apiKey(), tls, wanted);
    }

    private static SSLContext trusting(File ca) throws GeneralSecurityException, IOException {
        if (ca == null) {
            return SSLContext.getDefault();
        }
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream content = new FileInputStream(ca)) {
            for (Certificate one : CertificateFactory.getInstance("X.509").generateCertificates(content)) {
                trusted.setCertificateEntry("ca" + trusted.size(), one);
            }
        }
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        SSLContext found = SSLContext.getInstance("TLS");
        found.init(null, managers.getTrustManagers(), null);
        return found;
    }

    /** The lane for single messages if it is open; null if not. Does not wait. */
    Lane open() {
        Lane found = lane;
        return found == null || found.isOver() ? null : found;
    }

    /**
     * The lane for single messages, which is opened if it can be; null = go by Flight. One thread
     * waits for the broker, at most: the others go by Flight meanwhile.
     */
    Lane forSending() {
        Lane found = open();
        if (found != null || !means.wanted || closed || isAway() || !turn.tryLock()) {
            return found;
        }
        try {
            found = open();
            if (found == null) {
                Opened opened = connect();
                found = opened == null ? null : new Lane(opened, this);
                lane = found;
            }
            if (closed && found != null) {
                found.close();
            }
            return found;
        } finally {
            turn.unlock();
        }
    }

    /** A connection of a consumer's own; null = go by Flight. May wait for the broker. */
    Opened forConsuming() {
        return means.wanted && !closed ? connect() : null;
    }

    private Opened connect() {
        synchronized (this) {
            if (System.nanoTime() - closedUntilNs < 0) {
                return null;
            }
        }
        try {
            JsonNode nothing = DejaQException.JSON.createObjectNode();
            JsonNode said = client.action(broker, "lane", nothing, broker.signSecondsMax(), false);
            String name = said.path("name").asText("");
            int port = said.path("port").asInt(0);
            if (port > 0 && port < 1 << 16 && name.matches("[!-~]+")) {
                var place = new LaneSocket.Place(broker.host(), port, name, means.apiKey, means.tls);
                boolean hasFields = said.path("fields").asBoolean(false);
                return new Opened(broker, LaneSocket.connect(place), hasFields);
            }
        } catch (DejaQException wrong) {
            client.routes.leave(broker, wrong);
            if (wrong.canRetry()) { // it is away: whoever sends tries again soon
                synchronized (this) {
                    awayUntilNs = System.nanoTime() + FIRST_PAUSE_NS;
                }
                return null;
            }
        } catch (IOException | RuntimeException unreachable) {
            // By Flight, then.
        }
        failed();
        return null;
    }

    /** There is no lane, or it ended before it was of any use: all goes by Flight for a while. */
    synchronized void failed() {
        pauseNs = Math.min(Math.max(pauseNs * 2, FIRST_PAUSE_NS), FLIGHT_NS);
        closedUntilNs = System.nanoTime() + pauseNs;
    }

    private synchronized boolean isAway() {
        return System.nanoTime() - awayUntilNs < 0;
    }

    /** A lane broke, or the broker ended it. */
    void left(Broker from, DejaQException wrong) {
        client.routes.leave(from, wrong);
    }

    /** A lane is of use. */
    void worked() {
        if (pauseNs != 0) { // read without the lock: at worst it is reset by the next answer
            synchronized (this) {
                pauseNs = 0;
            }
        }
    }

    /** Has somebody who waits for the broker by a lane be ended when it gives no sign of life. */
    Attention.Watch watch(Runnable abort) {
        return client.attention.watch(broker, abort);
    }

    /** A lane was silent, or was told that it is none: the longest pause. */
    synchronized void leaveAlone() {
        pauseNs = FLIGHT_NS;
        failed();
    }

    /** Ends the lane. */
    void close() {
        closed = true;
        Lane left = lane;
        if (left != null) {
            left.close();
        }
    }
}
