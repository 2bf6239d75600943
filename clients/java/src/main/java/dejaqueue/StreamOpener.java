package dejaqueue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;

/**
 * Opens a consumer's streams, one after the other, where its topic is. Of one thread, but for `asked` and
 * `unknown`.
 */
final class StreamOpener {
    private final Client client;
    private final String topic;
    private final ObjectNode command;

    /** Until then streams go by Flight, after what a lane did not do. */
    private long byFlightUntilNs = System.nanoTime();

    /** Whose stream was opened last. */
    private volatile Broker asked;

    StreamOpener(Client client, String topic, ObjectNode command) {
        this.client = client;
        this.topic = topic;
        this.command = command;
        asked = client.routes.broker();
    }

    Broker asked() {
        return asked;
    }

    /** What whoever waits is told when there is no stream: this, or that the broker is silent. */
    DejaQException unknown(String otherwise) {
        return asked.isLost() ? asked.silence() : DejaQException.unavailable(otherwise);
    }

    /** By a lane where there is one, else by Flight. May wait for the broker. */
    ConsumeStream open() {
        Routes.Route route = client.routes.route(topic);
        asked = route.broker();
        boolean byLane = System.nanoTime() - byFlightUntilNs >= 0 && !client.routes.isPassedOn(topic);
        Lanes.Opened lane = byLane ? asked.lanes.forConsuming() : null;
        if (lane != null) {
            try {
                return LaneConsumeStream.open(lane.socket(), asked.lanes, client, command);
            } catch (IOException | RuntimeException wrong) {
                if (wrong instanceof DejaQException refused && isToBeRetried(refused)) {
                    throw refused;
                }
                leaveLanes(); // Flight passes it on, or says what is wrong
            }
        }
        return new FlightConsumeStream(client, route, command);
    }

    /** Whether another lane may do better: of a topic of another broker that one is known, or will be. */
    private boolean isToBeRetried(DejaQException wrong) {
        boolean isElsewhere = wrong.number == DejaQException.ELSEWHERE;
        return wrong.canRetry() && (!isElsewhere || client.routes.learn(topic, asked, wrong));
    }

    private void leaveLanes() {
        byFlightUntilNs = System.nanoTime() + Lanes.FLIGHT_NS;
    }

    /**
     * Takes over what a stream ended with; why it did, for whoever opens the next one.
     *
     * @param opened null if none was
     * @param worked whether anything came by it
     * @param closed whether the consumer ended it
     */
    DejaQException ended(ConsumeStream opened, DejaQException told, boolean worked, boolean closed) {
        client.routes.learn(topic, asked, told);
        if (opened == null || !opened.isLane()) {
            return told;
        }
        if (worked) {
            asked.lanes.worked();
        } else if (!closed) {
            asked.lanes.failed();
        }
        if (isToBeRetried(told)) {
            return told;
        }
        leaveLanes(); // Flight says what is wrong, if it is more than the lane
        return DejaQException.unavailable("the lane ended: " + told.getMessage());
    }
}
