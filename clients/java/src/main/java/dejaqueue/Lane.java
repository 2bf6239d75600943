package dejaqueue;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;

/**
 * An open lane for single messages of all producers of a client. One thread reads, whoever sends
 * writes. What is not answered when it breaks fails with Unavailable: the outcome is unknown.
 */
final class Lane {
    /** A broker that answers nothing for so long has gone, or whatever is in between has. */
    static final long SILENCE_NS_MAX = TimeUnit.SECONDS.toNanos(10);

    private record Waiting(CompletableFuture<Frames.Reply> answer, long sinceNs) {}

    /** Whether messages may have more than a payload and a due time. */
    final boolean hasFields;

    private final LaneSocket socket;
    final Broker broker;
    private final Lanes lanes;
    private final Attention.Watch attention;
    private final Map<Integer, Waiting> waiting = new ConcurrentHashMap<>();
    private final Object writing = new Object();
    private int number; // guarded by `writing`
    private volatile boolean over;
    private volatile boolean ended;

    Lane(Lanes.Opened opened, Lanes lanes) {
        socket = opened.socket();
        broker = opened.broker();
        hasFields = opened.hasFields();
        this.lanes = lanes;
        attention = lanes.watch(this::close);
        start(this::read, "dejaq-lane");
        start(this::watch, "dejaq-lane-watch");
    }

    private static void start(Runnable work, String name) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Whether nothing can be sent any more. */
    boolean isOver() {
        return over;
    }

    /** Sends the frame that is made for a number. */
    CompletableFuture<Frames.Reply> send(IntFunction<byte[]> frameOf) {
        CompletableFuture<Frames.Reply> answer = new CompletableFuture<>();
        synchronized (writing) {
            byte[] frame = frameOf.apply(++number);
            waiting.put(number, new Waiting(answer, System.nanoTime()));
            attention.waits();
            if (over) {
                waiting.remove(number);
                answer.completeExceptionally(DejaQException.unavailable("the lane is over"));
                return answer;
            }
            try {
                socket.write(frame);
                socket.flush();
            } catch (IOException broken) {
                over = true;
                socket.close(); // whoever reads ends all that wait
            }
        }
        return answer;
    }

    private void read() {
        String why = "the broker closed the lane";
        boolean worked = false;
        try {
            for (byte[] content = socket.read(); content != null; content = socket.read()) {
                Frames.Frame frame = Frames.decode(content);
                if (frame instanceof Frames.Reply reply) {
                    Waiting one = waiting.remove(reply.number());
                    attention.hears(false);
                    if (!waiting.isEmpty()) { // who sends meanwhile says so, or is seen here
                        attention.waits();
                    }
                    if (one != null) {
                        worked = true;
                        lanes.worked();
                        one.answer.complete(reply);
                    }
                } else if (frame instanceof Frames.Failed failed) {
                    over = true; // what was taken before may still be answered
                    why = failed.error().getMessage();
                    if (!failed.error().canRetry()) {
                        lanes.leaveAlone();
                    }
                }
            }
        } catch (IOException | RuntimeException broken) {
            why = "the lane broke: " + broken.getMessage();
        }
        over = true;
        ended = true;
        attention.close();
        socket.close();
        if (!worked && !waiting.isEmpty()) {
            lanes.failed();
        }
        DejaQException unknown = DejaQException.unavailable(why + "; the outcome is unknown");
        lanes.left(broker, unknown);
        for (Integer left : waiting.keySet()) {
            Waiting one = waiting.remove(left);
            if (one != null) {
                one.answer.completeExceptionally(unknown);
            }
        }
    }

    /** Ends the lane when somebody waits and nothing comes. */
    private void watch() {
        try {
            while (!ended) {
                Thread.sleep(1_000);
                long now = System.nanoTime();
                boolean isLate = waiting.values().stream()
                        .anyMatch(one -> now - one.sinceNs > SILENCE_NS_MAX);
                if (isLate && now - socket.heardNs() > SILENCE_NS_MAX) {
                    lanes.leaveAlone();
                    over = true;
                    socket.close();
                }
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** Ends it. Twice is fine. */
    void close() {
        over = true;
        socket.close();
    }
}
