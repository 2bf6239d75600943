package dejaqueue;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/**
 * Single messages of one producer's name, by the lane: those that come while a frame is on its way
 * are the next frame. What the lane does not answer with ids is sent again by Flight, under the
 * number that it has, so that it is not there twice; the answer there is what callers get.
 */
final class Singles {
    /** Payload and texts of a message: larger ones go by Flight. */
    private static final int SMALL_BYTES_MAX = 64 << 10;

    private static final int FRAME_ROWS_MAX = 1_000;
    private static final int FRAME_BYTES_MAX = 1 << 20;
    private static final int BAD_REQUEST = 10;

    private record Frame(int number, List<SendRow> rows) {
        boolean hasFields() {
            return rows.stream().anyMatch(SendRow::hasFields);
        }

        List<Message> messages() {
            return rows.stream().map(row -> row.message).toList();
        }
    }

    private final Client client;
    private final FlightBatches flight;
    private final String topic;
    private final byte[] names;
    /** Those of the broker that was asked last. */
    private volatile Lanes lanes;
    // Guarded by `this`.
    private final Deque<SendRow> waiting = new ArrayDeque<>();
    /** Parts of a frame that was refused for one of its rows: they go first. */
    private final Deque<List<SendRow>> parts = new ArrayDeque<>();
    private int number;
    private boolean busy;
    private boolean closed;

    /** Until then the topic is another broker's, and Flight passes it on. */
    private volatile long elsewhereUntilNs = System.nanoTime();

    Singles(Client client, String topic) {
        this.client = client;
        this.topic = topic;
        lanes = client.routes.broker().lanes;
        flight = new FlightBatches(client, Producer.commandOf(topic));
        names = SendRow.namesOf(flight.producer, topic);
    }

    /** Sends a message; null = it has to go by Flight, as there is no lane for it. */
    SendRow add(Message message) {
        if (message.payload.length > SMALL_BYTES_MAX || isElsewhere() || client.routes.isPassedOn(topic)) {
            return null;
        }
        lanes = client.routes.route(topic).broker().lanes;
        Lane lane = lanes.forSending();
        if (lane == null) {
            return null;
        }
        SendRow row = new SendRow(message, System.nanoTime() + client.retryMs * 1_000_000);
        if (row.bytes > SMALL_BYTES_MAX || (row.hasFields() && !lane.hasFields)) {
            return null;
        }
        Frame frame;
        synchronized (this) {
            if (closed) {
                throw DejaQException.unavailable("the producer is closed");
            }
            waiting.add(row);
            frame = busy ? null : take();
            busy = true;
        }
        if (frame != null) {
            dispatch(frame);
        }
        return row;
    }

    private boolean isElsewhere() {
        return System.nanoTime() - elsewhereUntilNs < 0;
    }

    /** Under the lock: what goes next; null = nothing waits. */
    private Frame take() {
        List<SendRow> rows = parts.poll();
        if (rows == null) {
            rows = new ArrayList<>();
            int bytes = 0;
            while (!waiting.isEmpty() && rows.size() < FRAME_ROWS_MAX) {
                bytes += waiting.peek().bytes;
                if (bytes > FRAME_BYTES_MAX) {
                    break;
                }
                rows.add(waiting.poll());
            }
        }
        if (rows.isEmpty()) {
            return null;
        }
        number = FlightBatches.next(number);
        return new Frame(number, rows);
    }

    /** Not under the lock: it may wait until the broker takes it. */
    private void dispatch(Frame frame) {
        try {
            Lane lane = isElsewhere() ? null : lanes.open();
            if (lane == null || (frame.hasFields() && !lane.hasFields)) {
                byFlight(frame);
                return;
            }
            lane.send(number -> SendRow.frameOf(number, frame.number, names, frame.rows))
                    .whenComplete((reply, broken) -> answered(frame, reply, lane.broker));
        } catch (RuntimeException wrong) {
            failed(frame, DejaQException.of(wrong));
        }
    }

    /** What the lane answered; null = it broke. On the thread that reads: it must not wait. */
    private void answered(Frame frame, Frames.Reply reply, Broker from) {
        DejaQException wrong = reply == null ? null : reply.error();
        if (reply != null && wrong == null && reply.ids().length == frame.rows.size()) {
            done(frame, reply);
        } else if (wrong != null && wrong.number == BAD_REQUEST && frame.rows.size() > 1) {
            halve(frame);
        } else {
            if (wrong != null && wrong.number == DejaQException.ELSEWHERE
                    && !client.routes.learn(topic, from, wrong)) {
                elsewhereUntilNs = System.nanoTime() + Lanes.FLIGHT_NS;
            }
            flight.later(() -> byFlight(frame));
        }
    }

    private void byFlight(Frame frame) {
        long deadlineNs = frame.rows.get(frame.rows.size() - 1).deadlineNs;
        try {
            flight.submit(frame.number, frame.messages(), deadlineNs)
                    .whenComplete((reply, wrong) -> answeredByFlight(frame, reply, wrong));
        } catch (RuntimeException wrong) {
            failed(frame, DejaQException.of(wrong));
        }
    }

    private void answeredByFlight(Frame frame, Frames.Reply reply, Throwable wrong) {
        if (wrong == null && reply.ids().length == frame.rows.size()) {
            done(frame, reply);
            return;
        }
        DejaQException why =
                wrong == null ? DejaQException.broken("an id for each row") : DejaQException.of(wrong);
        if (why.number == BAD_REQUEST && frame.rows.size() > 1) {
            halve(frame);
        } else {
            failed(frame, why);
        }
    }

    /** One row spoiled it, and nothing was changed: the others shall not pay for it. */
    private void halve(Frame frame) {
        int middle = frame.rows.size() / 2;
        synchronized (this) {
            parts.addFirst(frame.rows.subList(middle, frame.rows.size()));
            parts.addFirst(frame.rows.subList(0, middle));
        }
        goOn();
    }

    private void done(Frame frame, Frames.Reply reply) {
        goOn(); // first: the broker works while the callers wake up
        Status[] statuses = reply.statusesOf(frame.rows.size());
        for (int place = 0; place < statuses.length; place++) {
            long[] id = {reply.ids()[place]};
            Status[] status = {statuses[place]};
            frame.rows.get(place).answer.complete(new Client.Sent(id, status));
        }
    }

    private void failed(Frame frame, DejaQException wrong) {
        goOn();
        frame.rows.forEach(row -> row.answer.completeExceptionally(wrong));
    }

    /** A frame was answered: the next one. */
    private void goOn() {
        Frame frame;
        synchronized (this) {
            frame = take();
            if (frame == null) {
                busy = false;
                notifyAll();
                return;
            }
        }
        flight.later(() -> dispatch(frame));
    }

    /** Waits for what is on its way, at most as long as it is retried. */
    void close() {
        boolean interrupted = false;
        synchronized (this) {
            closed = true;
            while (busy) {
                try {
                    wait();
                } catch (InterruptedException wrong) {
                    interrupted = true;
                }
            }
        }
        flight.close();
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
