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

    /**
     * A broker that gave no sign of life is asked at once when something waits for it again. One that
     * answers is waited for as before.
     */
    private static final long AGAIN_MS = 100;

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
                if (asked.isLost()) {
                    wake();
                }
            }
        }

        /** An answer came; whether others are waited for. */
        void hears(boolean more) {
            heardNs = System.nanoTime();
            waits = more;
        }

        private boolean isLate() {
            long patienceNs = asked.isLost() ? TimeUnit.MILLISECONDS.toNanos(AGAIN_MS) : SILENT_NS;
            return waits && System.nanoTime() - heardNs > patienceNs;
        }

        /** Whether nothing was heard since then: what was answered meanwhile, and waits again, stays. */
        private boolean waitsSince(long ns) {
            return waits && heardNs - ns < 0;
        }

        @Override
        public void close() {
            watches.remove(this);
        }
    }

    /** One question to a broker. */
    private record Question(long beganNs, boolean silent) {
        static Question to(Broker asked) {
            return new Question(System.nanoTime(), asked.isSilent());
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

    private synchronized void wake() {
        notifyAll();
    }

    private synchronized void pause() throws InterruptedException {
        wait(watches.stream().anyMatch(one -> one.waits && one.asked.isLost()) ? AGAIN_MS : LOOK_MS);
    }

    private void look() {
        try {
            while (!closed) {
                pause();
                Map<Broker, Question> questions = new HashMap<>(); // each is asked once in a round
                for (Watch one : watches) {
                    if (!one.isLate()) {
                        continue;
                    }
                    Question asked = questions.computeIfAbsent(one.asked, Question::to);
                    if (asked.silent && one.waitsSince(asked.beganNs) && watches.remove(one)) {
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
