import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own client, as bench/systems/kafka.py asks for it. Arguments: the servers, a file of payloads, the length of each.
 *
 * <p>It prints `ready`, then reads a command a line, and answers each with a line, `messages seconds`:
 *
 * <pre>
 * make TOPIC                             a topic of one partition, each append of which is synced
 * fill TOPIC ROWS SECONDS                acks=all; ends when all that was sent is acknowledged
 * drain TOPIC GROUPS ROWS SECONDS        each group reads so many and commits, on a thread of its own
 * through TOPIC ROWS SECONDS             sent for half of the time, read and committed beside it
 * </pre>
 */
public final class KafkaLoad {
    private static final int BATCH_ROWS = 1_000;
    private static final Duration SILENCE = Duration.ofSeconds(5);

    private final String servers;
    private final byte[][] payloads;

    private KafkaLoad(String servers, byte[][] payloads) {
        this.servers = servers;
        this.payloads = payloads;
    }

    public static void main(String[] arguments) throws Exception {
        byte[] block = Files.readAllBytes(Path.of(arguments[1]));
        int size = Integer.parseInt(arguments[2]);
        byte[][] payloads = new byte[block.length / size][];
        for (int row = 0; row < payloads.length; row++) {
            payloads[row] = Arrays.copyOfRange(block, row * size, (row + 1) * size);
        }
        KafkaLoad load = new KafkaLoad(arguments[0], payloads);
        System.out.println("ready");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            System.out.println(load.answer(lines.nextLine().split(" ")));
        }
        System.exit(0);
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "make":
                return make(words[1]);
            case "fill":
                return fill(words[1], Integer.parseInt(words[2]), seconds(words[3]));
            case "drain":
                int groups = Integer.parseInt(words[2]);
                return drain(words[1], groups, Integer.parseInt(words[3]), seconds(words[4]));
            case "through":
                return through(words[1], Integer.parseInt(words[2]), seconds(words[3]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String make(String topic) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers);
        NewTopic made = new NewTopic(topic, 1, (short) 1).configs(Map.of("flush.messages", "1"));
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(made)).all().get();
        }
        return told(0, 0);
    }

    private String fill(String topic, int rows, long length) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(topic)) {
            long began = System.nanoTime();
            long sent = send(producer, topic, rows, began + length);
            return told(sent, System.nanoTime() - began);
        }
    }

    /** Returns how many were sent, when all of them are acknowledged. */
    private long send(KafkaProducer<byte[], byte[]> producer, String topic, int rows, long end) {
        AtomicReference<Exception> wrong = new AtomicReference<>();
        int sent = 0;
        while (sent < rows && (sent % BATCH_ROWS != 0 || System.nanoTime() < end)) {
            producer.send(new ProducerRecord<>(topic, 0, null, payloads[sent]), (found, error) -> {
                if (error != null) {
                    wrong.set(error);
                }
            });
            sent++;
        }
        producer.flush();
        if (wrong.get() != null) {
            throw new IllegalStateException(wrong.get());
        }
        return sent;
    }

    private String drain(String topic, int groups, int rows, long length) throws Exception {
        CountDownLatch ready = new CountDownLatch(groups), go = new CountDownLatch(1);
        AtomicLong read = new AtomicLong(), last = new AtomicLong();
        AtomicLong end = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < groups; number++) {
            String group = topic + "-" + number;
            Thread thread = new Thread(() -> {
                try (KafkaConsumer<byte[], byte[]> consumer = consumer(topic, group)) {
                    ready.countDown();
                    go.await();
                    read.addAndGet(readAll(consumer, new AtomicLong(rows), end.get(), last));
                } catch (InterruptedException stopped) {
                    throw new IllegalStateException(stopped);
                }
            });
            threads.add(thread);
            thread.start();
        }
        ready.await();
        long began = System.nanoTime();
        end.set(began + length);
        go.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        return told(read.get(), last.get() - began);
    }

    private String through(String topic, int rows, long length) throws Exception {
        AtomicLong wanted = new AtomicLong(Long.MAX_VALUE), read = new AtomicLong();
        AtomicLong last = new AtomicLong();
        CountDownLatch ready = new CountDownLatch(1), go = new CountDownLatch(1);
        AtomicLong end = new AtomicLong();
        try (KafkaProducer<byte[], byte[]> producer = producer(topic)) {
            Thread reader = new Thread(() -> {
                try (KafkaConsumer<byte[], byte[]> consumer = consumer(topic, topic + "-0")) {
                    ready.countDown();
                    go.await();
                    read.set(readAll(consumer, wanted, end.get(), last));
                } catch (InterruptedException stopped) {
                    throw new IllegalStateException(stopped);
                }
            });
            reader.start();
            ready.await();
            long began = System.nanoTime();
            end.set(began + length);
            go.countDown();
            wanted.set(send(producer, topic, rows, began + length / 2));
            reader.join();
            return told(read.get(), last.get() - began);
        }
    }

    /**
     * Reads and commits until so many are read, the time is up or nothing more comes. A commit is sent when the one before is
     * answered, as each is synced; the last one is waited for, and `last` is when it was durable.
     */
    private static long readAll(
            KafkaConsumer<byte[], byte[]> consumer, AtomicLong wanted, long end, AtomicLong last) {
        AtomicBoolean isCommitting = new AtomicBoolean();
        long read = 0, heard = System.nanoTime();
        while (read < wanted.get() && System.nanoTime() < end) {
            int found = consumer.poll(Duration.ofMillis(10)).count();
            if (found == 0) {
                if (System.nanoTime() - heard > SILENCE.toNanos()) {
                    break;
                }
                continue;
            }
            heard = System.nanoTime();
            read += found;
            if (!isCommitting.getAndSet(true)) {
                consumer.commitAsync((offsets, error) -> isCommitting.set(false));
            }
        }
        consumer.commitSync();
        last.accumulateAndGet(System.nanoTime(), Math::max);
        return read;
    }

    /** It has been connected, as the clients of other systems are: what it sends first is measured. */
    private KafkaProducer<byte[], byte[]> producer(String topic) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put(ProducerConfig.ACKS_CONFIG, "all");
        settings.put(ProducerConfig.BATCH_SIZE_CONFIG, 128 << 10);
        settings.put(ProducerConfig.LINGER_MS_CONFIG, 5);
        settings.put(ProducerConfig.BUFFER_MEMORY_CONFIG, 64L << 20);
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.partitionsFor(topic);
        return producer;
    }

    /** It has the partition by name: no group has to agree first on who gets it. */
    private KafkaConsumer<byte[], byte[]> consumer(String topic, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, group);
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, BATCH_ROWS);
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        TopicPartition partition = new TopicPartition(topic, 0);
        consumer.assign(List.of(partition));
        consumer.position(partition);
        return consumer;
    }

    private static long seconds(String text) {
        return (long) (Double.parseDouble(text) * 1e9);
    }

    private static String told(long rows, long length) {
        return rows + " " + length / 1e9;
    }
}
