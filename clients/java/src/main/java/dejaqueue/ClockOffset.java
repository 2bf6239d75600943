package dejaqueue;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayDeque;

/** The broker's clock, seen from here; an offset is it less the client's. Microseconds. */
final class ClockOffset {
    private static final int SAMPLES_KEPT = 16;
    private static final long DRIFT_PPM = 50;
    /** Twice what the clock of a broker that takes topics may be off. */
    static final long BROKERS_APART_US = 1_000_000;
    private static final long STARTED_NS = System.nanoTime();
    private static final long STARTED_US = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());

    private record Sample(long offset, long error, long at) {
        long errorAt(long now) {
            return error + (now - at) * DRIFT_PPM / 1_000_000;
        }
    }

    private final ArrayDeque<Sample> samples = new ArrayDeque<>();
    /** An earlier stream's, which is better than none. */
    private final long formerUs;
    /** A time that the broker's clock has reached for sure: it stood in a DELIVERY. */
    long reachedUs;

    ClockOffset() {
        this(0);
    }

    private ClockOffset(long formerUs) {
        this.formerUs = formerUs;
    }

    /** Measured anew, on the next stream. */
    ClockOffset next() {
        return new ClockOffset(samples.isEmpty() ? formerUs : at(nowUs())[0]);
    }

    /** UTC by a clock that does not jump: the wall clock of the start, and what has elapsed since. */
    static long nowUs() {
        return STARTED_US + (System.nanoTime() - STARTED_NS) / 1_000;
    }

    void addPong(long sent, long received, long broker) {
        long trip = Math.max(received - sent, 0);
        samples.addLast(new Sample(broker - (sent + trip / 2), (trip + 1) / 2, received));
        if (samples.size() > SAMPLES_KEPT) {
            samples.removeFirst();
        }
    }

    /** Offset and uncertainty, which is UNKNOWN before the first answer. */
    long[] at(long now) {
        long[] best = {0, Frames.UNKNOWN};
        for (Sample one : samples) {
            if (best[1] == Frames.UNKNOWN || one.errorAt(now) < best[1]) {
                best = new long[] {one.offset, one.errorAt(now)};
            }
        }
        return best;
    }

    /** How long from now until the broker's clock is there for sure; UNKNOWN if that is not known. */
    long waitUs(long dueUs, long now) {
        if (dueUs <= reachedUs) {
            return 0;
        }
        long[] offset = at(now);
        return offset[1] == Frames.UNKNOWN
                ? Frames.UNKNOWN
                : Math.max(dueUs - (now + offset[0] - offset[1]), 0);
    }

    /**
     * What the broker's clock has reached. Before it is measured on this stream, that is what it stood at in a
     * DELIVERY, or what the broker before had reached, less what the clocks of two may be apart.
     */
    long reachedMs(long now) {
        if (samples.isEmpty()) {
            return Math.max(now + formerUs - BROKERS_APART_US, reachedUs) / 1_000;
        }
        return brokerMs(now);
    }

    long brokerMs(long now) {
        long offset = samples.isEmpty() ? formerUs : at(now)[0];
        return Math.max(now + offset, reachedUs) / 1_000;
    }
}
