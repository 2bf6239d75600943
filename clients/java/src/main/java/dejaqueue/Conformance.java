package dejaqueue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Does with the client what it is told, a JSON object a line; tests/clients has the other end. */
public final class Conformance {
    private final Map<String, Producer> producers = new HashMap<>();
    private final Map<String, Message> received = new HashMap<>();
    private Client client;
    private Consumer consumer;
    private Transaction transaction;

    private Conformance() {}

    /**
     * Reads from standard input until it ends. There is a driver for each name that requests are of: each
     * does one at a time, all of them at the same time.
     */
    public static void main(String[] arguments) throws IOException {
        Map<String, ExecutorService> threads = new HashMap<>();
        Map<String, Conformance> drivers = new HashMap<>();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = DejaQException.JSON.readTree(line);
            String of = asked.path("of").asText("");
            Conformance driver = drivers.computeIfAbsent(of, missing -> new Conformance());
            threads.computeIfAbsent(of, missing -> Executors.newSingleThreadExecutor()).execute(() -> {
                ObjectNode answer = driver.answer(asked).put("of", of);
                synchronized (answers) {
                    answers.println(answer);
                }
            });
        }
        System.exit(0);
    }

    private ObjectNode answer(JsonNode asked) {
        try {
            return (ObjectNode) act(asked);
        } catch (DejaQException wrong) {
            return (ObjectNode) told(wrong);
        } catch (Exception wrong) {
            wrong.printStackTrace();
            ObjectNode error = object().put("number", 0).put("name", wrong.getClass().getName());
            return object().set("error", error.put("text", wrong.toString()));
        }
    }

    private static ObjectNode object() {
        return DejaQException.JSON.createObjectNode();
    }

    private static JsonNode told(DejaQException wrong) {
        ObjectNode error = object().put("number", wrong.number).put("name", wrong.name);
        error.put("text", wrong.getMessage()).put("retry", wrong.canRetry());
        return object().set("error", error.set("fields", wrong.fields));
    }

    private JsonNode act(JsonNode asked) throws Exception {
        String topic = asked.path("topic").asText();
        List<Message> named = new ArrayList<>();
        asked.path("ids").forEach(id -> named.add(received.get(id.asText())));
        switch (asked.path("do").asText()) {
            case "connect" -> {
                File ca = asked.hasNonNull("ca") ? new File(asked.get("ca").asText()) : null;
                var options = new Client.Options(
                        asked.path("api_key").asText(""), ca, asked.path("retry_ms").asLong(0),
                        asked.path("flight_only").asBoolean(false), asked.path("stays").asBoolean(false));
                producers.clear();
                client = new Client(asked.path("url").asText(), options);
            }
            case "create_topic" -> client.createTopic(
                    topic, asked.path("settings") instanceof ObjectNode settings ? settings : null);
            case "stats" -> {
                return client.action("stats", object().put("topic", topic));
            }
            case "send" -> {
                return sent(producer(topic).send(messages(asked)));
            }
            case "send_each" -> {
                return sendEach(asked);
            }
            case "flood" -> {
                return flood(asked);
            }
            case "peek" -> {
                return rows(client.peek(topic, null), List.of());
            }
            case "move" -> {
                return statuses(client.move(topic, changes(asked)));
            }
            case "cancel" -> {
                return statuses(client.cancel(topic, changes(asked)));
            }
            case "consume" -> {
                List<String> tags = new ArrayList<>();
                asked.path("tags_any").forEach(tag -> tags.add(tag.asText()));
                consumer = client.consume(topic, new Consumer.Options(
                        "conformance", asked.path("lease_ms").asLong(0),
                        asked.path("credit").asInt(0), tags));
            }
            case "receive" -> {
                return receive(asked);
            }
            case "ack" -> {
                return statuses(consumer.ack(named));
            }
            case "ack_async" -> named.forEach(one -> consumer.ackAsync(List.of(one)));
            case "flush" -> consumer.flush();
            case "nack" -> {
                return statuses(consumer.nack(new Consumer.Refusal(
                        asked.path("delay_ms").asLong(0), asked.path("reason").asText(""),
                        asked.path("dead").asBoolean(false)), named));
            }
            case "extend" -> {
                return statuses(consumer.extend(asked.path("lease_ms").asLong(0), named));
            }
            case "close_consumer" -> consumer.close();
            case "begin" -> transaction = client.begin(topic, asked.path("timeout_ms").asLong());
            case "tx_send" -> {
                return sent(transaction.send(topic, messages(asked)));
            }
            case "tx_ack" -> {
                return statuses(transaction.ack(consumer, named));
            }
            case "commit" -> transaction.commit();
            case "abort" -> transaction.abort();
            case "close" -> {
                producers.values().forEach(Producer::close);
                client.close();
            }
            default -> throw new IllegalArgumentException("not known: " + asked);
        }
        return object();
    }

    private Producer producer(String topic) {
        return producers.computeIfAbsent(topic, client::producer);
    }

    /** Each message alone, by a thread of its own, all at the same time; each has an answer. */
    private JsonNode sendEach(JsonNode asked) throws Exception {
        Producer producer = producer(asked.path("topic").asText());
        List<Message> messages = messages(asked);
        ExecutorService senders = Executors.newFixedThreadPool(messages.size());
        List<Future<Client.Sent>> sending = new ArrayList<>();
        messages.forEach(one -> sending.add(senders.submit(() -> producer.send(List.of(one)))));
        senders.shutdown();
        ObjectNode answer = object();
        ArrayNode answers = answer.putArray("answers");
        for (Future<Client.Sent> one : sending) {
            try {
                answers.add(sent(one.get()));
            } catch (ExecutionException wrong) {
                answers.add(told(DejaQException.of(wrong.getCause())));
            }
        }
        return answer;
    }

    /**
     * Batches of 10 messages by four threads, or each message alone by 40, which wait after each, or
     * as many in both ways at the same time: what was answered is counted.
     */
    private JsonNode flood(JsonNode asked) throws Exception {
        Producer producer = producer(asked.path("topic").asText());
        boolean mixed = asked.path("mixed").asBoolean(false);
        boolean single = mixed || asked.path("single").asBoolean(false);
        boolean together = mixed || !single;
        ExecutorService batching = Executors.newFixedThreadPool(4);
        ExecutorService alone = Executors.newFixedThreadPool(40);
        List<Future<?>> sending = new ArrayList<>();
        int batches = asked.path("batches").asInt();
        int firstAlone = mixed ? batches * 10 : 0;
        long waitMs = asked.path("wait_ms").asLong();
        for (int first = 0; single && first < 40; first++) {
            int begin = first;
            sending.add(alone.submit(() -> {
                for (int number = begin; number < batches * 10; number += 40) {
                    producer.send(List.of(numbered(asked, firstAlone + number)));
                    Thread.sleep(waitMs);
                }
                return null;
            }));
        }
        for (int batch = 0; together && batch < batches; batch++) {
            List<Message> messages = new ArrayList<>();
            for (int place = 0; place < 10; place++) {
                messages.add(numbered(asked, batch * 10 + place));
            }
            sending.add(batching.submit(() -> producer.send(messages)));
            Thread.sleep(waitMs);
        }
        batching.shutdown();
        alone.shutdown();
        for (Future<?> one : sending) {
            try {
                one.get();
            } catch (ExecutionException wrong) {
                throw DejaQException.of(wrong.getCause());
            }
        }
        return object().put("sent", batches * (mixed ? 20 : 10));
    }

    private static Message numbered(JsonNode asked, int number) {
        int own = asked.path("first").asInt(0) + number;
        Message message = new Message(Integer.toString(own).getBytes(StandardCharsets.UTF_8), 0);
        message.key = asked.path("keyed").asBoolean(false) ? "k" + own : "";
        return message;
    }

    private JsonNode receive(JsonNode asked) {
        long until = System.nanoTime() + asked.path("wait_ms").asLong() * 1_000_000;
        List<Message> found = new ArrayList<>();
        List<Long> at = new ArrayList<>();
        while (found.size() < asked.path("count").asInt()) {
            Message message = consumer.receive(Math.max((until - System.nanoTime()) / 1_000_000, 0));
            if (message == null) {
                break;
            }
            at.add(System.currentTimeMillis());
            found.add(message);
            received.put(Long.toString(message.id), message);
        }
        return rows(found, at);
    }

    private static List<Client.Change> changes(JsonNode asked) {
        List<Client.Change> found = new ArrayList<>();
        asked.path("rows").forEach(row -> found.add(new Client.Change(
                row.path("id").asLong(), row.path("key").asText(""), row.path("due_ms").asLong())));
        asked.path("ids").forEach(id -> found.add(new Client.Change(id.asLong(), "", 0)));
        asked.path("keys").forEach(key -> found.add(new Client.Change(0, key.asText(), 0)));
        return found;
    }

    private static List<Message> messages(JsonNode asked) {
        List<Message> found = new ArrayList<>();
        for (JsonNode row : asked.path("rows")) {
            byte[] payload = Base64.getDecoder().decode(row.path("payload").asText());
            Message message = new Message(payload, row.path("due_ms").asLong(0));
            message.key = row.path("key").asText("");
            message.group = row.path("group").asText("");
            message.priority = row.path("priority").asInt(Message.DEFAULT_PRIORITY);
            message.tags = new ArrayList<>();
            row.path("tags").forEach(tag -> message.tags.add(tag.asText()));
            message.headers = new LinkedHashMap<>();
            row.path("headers").fields().forEachRemaining(
                    one -> message.headers.put(one.getKey(), one.getValue().asText()));
            found.add(message);
        }
        return found;
    }

    private static JsonNode rows(List<Message> messages, List<Long> at) {
        ObjectNode answer = object();
        ArrayNode rows = answer.putArray("rows");
        for (int place = 0; place < messages.size(); place++) {
            Message one = messages.get(place);
            ObjectNode row = rows.addObject().put("id", Long.toString(one.id)).put("key", one.key);
            row.put("payload", Base64.getEncoder().encodeToString(one.payload)).put("due_ms", one.dueMs);
            row.put("group", one.group).put("priority", one.priority).put("attempts", one.attempts);
            ArrayNode tags = row.putArray("tags");
            one.tags.forEach(tags::add);
            ObjectNode headers = row.putObject("headers");
            one.headers.forEach(headers::put);
            row.put("received_ms", at.isEmpty() ? 0 : at.get(place));
        }
        return answer;
    }

    private static ObjectNode statuses(Status[] found) {
        ObjectNode answer = object();
        ArrayNode names = answer.putArray("statuses");
        for (Status one : found) {
            names.add(one.name());
        }
        return answer;
    }

    private static JsonNode sent(Client.Sent answer) {
        ObjectNode found = statuses(answer.statuses());
        ArrayNode ids = found.putArray("ids");
        for (long id : answer.ids()) {
            ids.add(Long.toString(id));
        }
        return found;
    }
}
