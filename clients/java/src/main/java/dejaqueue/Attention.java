package dejaqueue;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * Notices brokers that are reachable and silent: paused, hung, or cut off. Such a connection does not
 * break by itself for minutes. Whoever has waited too long has the broker asked for a sign of life; where
 * none comes, what waits is ended.
 */
final class Attention {
    private static final long SILENT_NS = TimeUnit.SECONDS.toNanos(5);
    private static final long LOOK_MS = 1_000;

    /** Something that waits for a broker. Close it when it waits no more. */
    final class Watch implements AutoCloseable {
        private final Broker asked;
        private final Runnable abort;
        private volatile long heardNs = System.nanoTime();
        private volatile boolean waits;

        private Watch(Broker asked, Runnable abort) {
            this.asked = asked;
            this.abort = abort;
        }

        /** Something was sent that is answered. */
        void waits() {
            if (!waits) {
                heardNs = System.nanoTime();
                waits = true;
            }
        }

        /** An answer came; whether others are waited for. */
        void hears(boolean more) {
            heardNs = System.nanoTime();
            waits = more;
        }

        private boolean isLate() {
            return waits && System.nanoTime() - heardNs > SILENT_NS;
        }

        @Override
        public void close() {
            watches.remove(this);
        }
    }

    private final Set<Watch> watches = ConcurrentHashMap.newKeySet();
    private boolean looking; // guarded by `this`
    private volatile boolean closed;

    /**
     * Watches what waits for a broker.
     *
     * @param abort ends it; must not wait
     */
    Watch watch(Broker asked, Runnable abort) {
        Watch made = new Watch(asked, abort);
        watches.add(made);
        synchronized (this) {
            if (!looking) {
                looking = true;
                Thread thread = new Thread(this::look, "dejaq-attention");
                thread.setDaemon(true);
                thread.start();
            }
        }
        return made;
    }

    static DejaQException silent() {
        return DejaQException.unavailable("the broker does not answer; the outcome is unknown");
    }

    private void look() {
        try {
            while (!closed) {
                Thread.sleep(LOOK_MS);
                Map<Broker, Boolean> silence = new HashMap<>(); // each is asked once in a round
                for (Watch one : watches) {
                    if (one.isLate() && silence.computeIfAbsent(one.asked, Broker::isSilent)
                            && one.isLate() && watches.remove(one)) {
                        one.abort.run();
                    }
                }
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    void close() {
        closed = true;
    }
}
