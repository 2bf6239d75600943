package dejaqueue;

import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * A client's brokers, and which of them serves what. Whoever is asked by a client that follows tells
 * it, and the client goes there itself. Topics in shards are left to the brokers, any of which puts them
 * together, and so are those whose broker cannot be reached from here.
 */
final class Routes {
    /** How many brokers are known that the address does not name. */
    private static final int TOLD_MAX = 64;

    /** Makes a connection to a broker that another one told of. */
    interface Connect {
        Broker to(URI url);
    }

    /**
     * Whom to ask.
     *
     * @param follows ask as a client that goes to other brokers itself
     */
    record Route(Broker broker, boolean follows) {}

    private final String scheme;
    private final boolean stays;
    private final Connect connect;
    // Guarded by `this`.
    private final List<Broker> brokers = new ArrayList<>();
    private final Map<String, Broker> told = new HashMap<>();
    private final Map<String, Broker> homes = new HashMap<>();
    private final Set<String> passedOn = new HashSet<>();
    private int at;

    /**
     * Routes without a broker yet.
     *
     * @param scheme of all addresses: with TLS nothing goes in the clear
     * @param stays brokers pass calls on, whoever serves the topic
     */
    Routes(String scheme, boolean stays, Connect connect) {
        this.scheme = scheme;
        this.stays = stays;
        this.connect = connect;
    }

    synchronized void add(Broker named) {
        brokers.add(named);
    }

    /** Whom to ask about nothing in particular. */
    synchronized Broker broker() {
        return brokers.get(at);
    }

    /** Has the next broker be asked if what went wrong at this one may be for its being away. */
    synchronized void leave(Broker from, DejaQException wrong) {
        if (wrong.number == DejaQException.UNAVAILABLE && brokers.get(at) == from) {
            at = (at + 1) % brokers.size();
        }
    }

    /**
     * Whom to ask about a topic. Waits for the sign of life of a broker that it was told of just now.
     */
    Route route(String topic) {
        Broker first;
        Broker home;
        synchronized (this) {
            first = brokers.get(at);
            if (stays || topic.isEmpty() || passedOn.contains(topic)) {
                return new Route(first, false);
            }
            home = homes.get(topic);
        }
        if (home == null) {
            return new Route(first, true);
        }
        if (!home.isReached()) {
            return new Route(first, false);
        }
        synchronized (this) {
            if (!brokers.contains(home)) {
                brokers.add(home);
            }
        }
        return new Route(home, true);
    }

    /** Takes over what a call about a topic ended with; whether it is known where to go, or will be. */
    synchronized boolean learn(String topic, Broker from, DejaQException wrong) {
        if (wrong.number != DejaQException.ELSEWHERE) {
            if (wrong.number == DejaQException.UNAVAILABLE) {
                homes.remove(topic, from);
            }
            leave(from, wrong);
            return true;
        }
        if (stays || topic.isEmpty() || passedOn.contains(topic)) {
            return false;
        }
        String url = wrong.fields.path("url").asText("");
        if (wrong.fields.path("spread").asInt(0) > 1) {
            passedOn.add(topic);
            return false;
        }
        if (url.isEmpty()) { // nobody's at the moment
            homes.remove(topic);
            return true;
        }
        Broker home = toldOf(url);
        if (home == null) {
            passedOn.add(topic);
            return false;
        }
        homes.put(topic, home);
        return home.mayBeReached();
    }

    /** Under the lock; null = it is no place to go to. */
    private Broker toldOf(String url) {
        URI parsed;
        try {
            parsed = URI.create(url);
        } catch (IllegalArgumentException wrong) {
            return null;
        }
        if (!scheme.equals(parsed.getScheme())) {
            return null;
        }
        String address = parsed.getHost() + ":" + parsed.getPort();
        for (Broker known : brokers) {
            if (known.address.equals(address)) {
                return known;
            }
        }
        Broker found = told.get(address);
        if (found == null && told.size() < TOLD_MAX) {
            found = connect.to(parsed);
            told.put(address, found);
        }
        return found;
    }

    /** Whether a topic is left to the brokers. */
    synchronized boolean isPassedOn(String topic) {
        return passedOn.contains(topic);
    }

    /** All that there are connections to. */
    synchronized Set<Broker> all() {
        Set<Broker> found = new HashSet<>(brokers);
        found.addAll(told.values());
        return found;
    }
}
