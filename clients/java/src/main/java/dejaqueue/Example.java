package dejaqueue;

import java.nio.charset.StandardCharsets;
import java.util.List;

/** Sends a message that is due in half a second, and waits for it. */
public final class Example {
    private Example() {}

    /** The first argument is the broker's address. */
    public static void main(String[] arguments) {
        String address = arguments.length > 0 ? arguments[0] : "dejaq://localhost:7464";
        try (Client client = new Client(address, new Client.Options())) {
            client.createTopic("reminders", null);
            long due = System.currentTimeMillis() + 500;
            try (Producer producer = client.producer("reminders");
                    Consumer consumer = client.consume("reminders", new Consumer.Options())) {
                byte[] payload = "stretch your legs".getBytes(StandardCharsets.UTF_8);
                producer.send(List.of(new Message(payload, due)));
                Message message = consumer.receive(60_000);
                boolean inTime = System.currentTimeMillis() >= message.dueMs;
                String said = new String(message.payload, StandardCharsets.UTF_8);
                System.out.println(said + ", never early: " + inTime);
                consumer.ack(List.of(message));
            }
        }
    }
}
