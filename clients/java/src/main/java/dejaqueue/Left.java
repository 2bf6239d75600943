package dejaqueue;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Messages that a consumer gives back when it closes.
 *
 * @param released nobody looked at them: they are not due before they were
 */
record Left(boolean released, long argumentMs, List<Message> messages) {
    /** What is due within so much of each other goes back together: so much later it may come. */
    private static final long STEP_MS = 50;

    /** Those that were held, and those that were handed over and not settled. */
    static List<Left> of(Collection<Message> held, Collection<Message> handed, long reachedMs) {
        Map<Long, List<Message>> bySteps = new TreeMap<>();
        for (Message one : held) {
            long step = (delayMs(one, reachedMs) + STEP_MS - 1) / STEP_MS;
            bySteps.computeIfAbsent(step, none -> new ArrayList<>()).add(one);
        }
        List<Left> found = new ArrayList<>();
        for (List<Message> together : bySteps.values()) {
            long argumentMs = 0;
            for (Message one : together) {
                argumentMs = Math.max(argumentMs, delayMs(one, reachedMs));
            }
            found.add(new Left(true, argumentMs, List.copyOf(together)));
        }
        if (!handed.isEmpty()) {
            found.add(new Left(false, 0, List.copyOf(handed)));
        }
        return found;
    }

    /** One more for what is cut off, and one for what is not known of the broker's clock. */
    private static long delayMs(Message one, long reachedMs) {
        return Math.max(one.dueMs - reachedMs + 2, 0);
    }

    /** As a SETTLE of a stream, to which nobody waits for an answer. */
    byte[] frame() {
        long[] ids = messages.stream().mapToLong(one -> one.id).toArray();
        int[] attempts = messages.stream().mapToInt(one -> one.attempts).toArray();
        int fate = released ? Frames.RELEASED : 0;
        return Frames.settleRows(Frames.NACK, fate, 0, argumentMs, ids, attempts, "");
    }
}
