package dejaqueue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;

/**
 * Sends to one topic. What was not answered when a connection broke is sent again, and is not there
 * twice. A single small message goes by the broker's lane, if there is one; all else by Flight. Safe
 * for many threads.
 */
public final class Producer implements AutoCloseable {
    /** Batches on their way at most: a broker remembers the last 128. */
    private static final int WINDOW = 64;

    private final FlightBatches batches;
    /** Null in a transaction, which has no lane. */
    private final Singles singles;
    private final Semaphore slots = new Semaphore(WINDOW);

    private Producer(FlightBatches batches, Singles singles) {
        this.batches = batches;
        this.singles = singles;
    }

    static Producer of(Client client, String topic) {
        return new Producer(new FlightBatches(client, commandOf(topic)), new Singles(client, topic));
    }

    static Producer inTransaction(Client client, String topic, String transaction) {
        ObjectNode command = commandOf(topic).put("transaction", transaction);
        return new Producer(new FlightBatches(client, command), null);
    }

    static ObjectNode commandOf(String topic) {
        return DejaQException.JSON.createObjectNode().put("topic", topic);
    }

    /** Sends messages, and returns when they are durable. Several of them are one batch. */
    public Client.Sent send(List<Message> messages) {
        if (messages.isEmpty()) {
            return new Client.Sent(new long[0], new Status[0]);
        }
        try {
            if (singles != null && messages.size() == 1) {
                SendRow row = singles.add(messages.get(0));
                if (row != null) {
                    return row.answer.get();
                }
            }
            slots.acquire();
            try {
                Frames.Reply reply = batches.submit(List.copyOf(messages)).get();
                return new Client.Sent(reply.ids(), reply.statusesOf(messages.size()));
            } finally {
                slots.release();
            }
        } catch (ExecutionException wrong) {
            throw DejaQException.of(wrong.getCause());
        } catch (InterruptedException wrong) {
            Thread.currentThread().interrupt();
            throw DejaQException.unavailable("interrupted; the outcome is unknown");
        }
    }

    /** Waits for what is on its way, at most as long as it is retried. */
    @Override
    public void close() {
        slots.acquireUninterruptibly(WINDOW);
        slots.release(WINDOW);
        batches.close();
        if (singles != null) {
            singles.close();
        }
    }
}
