package dejaqueue;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** Sends and acks that count together, when it is committed, or never. */
public final class Transaction {
    /** The low bits of an id; above them is the partition. */
    private static final int SEQUENCE_BITS = 47;

    private final Client client;
    /** Which keeps its decision. */
    private final String topic;
    private final String name;
    private final Map<String, Producer> producers = new HashMap<>();
    private final Set<String> participants = new TreeSet<>();
    private DejaQException wrong;

    Transaction(Client client, String topic, String name) {
        this.client = client;
        this.topic = topic;
        this.name = name;
    }

    /** Stages messages. */
    public synchronized Client.Sent send(String topic, List<Message> messages) {
        Producer producer = producers.computeIfAbsent(
                topic, missing -> Producer.inTransaction(client, topic, name));
        try {
            Client.Sent sent = producer.send(messages);
            for (long id : sent.ids()) {
                note(topic, id);
            }
            return sent;
        } catch (DejaQException failed) {
            wrong = failed;
            throw failed;
        }
    }

    /** Stages acks of messages that a consumer received. */
    public synchronized Status[] ack(Consumer consumer, List<Message> messages) {
        if (messages.isEmpty()) {
            return new Status[0];
        }
        try {
            Status[] statuses = client.stageAcks(consumer.topic, name, messages);
            for (int row = 0; row < statuses.length; row++) {
                note(consumer.topic, messages.get(row).id);
                if (statuses[row] != Status.OK) {
                    String text = "an acked message had lost its lease";
                    wrong = new DejaQException(
                            20, "Refused", text, DejaQException.JSON.createObjectNode(), false);
                }
            }
            consumer.leave(messages);
            return statuses;
        } catch (DejaQException failed) {
            wrong = failed;
            throw failed;
        }
    }

    private void note(String topic, long id) {
        if (id >= 0) {
            participants.add(topic + "/" + (id >> SEQUENCE_BITS));
        }
    }

    /** Has all of it count. Call it again if the answer is lost: it will be the same. */
    public synchronized void commit() {
        if (wrong != null) {
            throw wrong;
        }
        end("commit_transaction");
    }

    /** Forgets all of it. */
    public synchronized void abort() {
        end("abort_transaction");
    }

    private void end(String action) {
        producers.values().forEach(Producer::close);
        ObjectNode body = DejaQException.JSON.createObjectNode().put("transaction", name);
        ArrayNode named = body.putArray("participants");
        participants.forEach(named::add);
        client.actionOf(topic, action, body);
    }
}
